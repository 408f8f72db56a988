#include "tensor_parallel/regions.h"

namespace trifold {

int64_t Region::rows_outside(int64_t inside) const {
  if (!slices_) return inside;
  check(inside % tp_ == 0,
        "the {} rows (samples x positions) of a micro-batch cannot be cut evenly over {} tensor-parallel "
        "ranks: sequence parallelism needs a sequence length that is a multiple of {}",
        inside, tp_, tp_);
  return inside / tp_;
}

Tensor Region::own_rows(Tensor all) const {
  const int64_t rows = rows_outside(all.dim(0));
  return slices_ ? all.rows(part_ * rows, (part_ + 1) * rows) : all;
}

Tensor Region::gather_rows(Run& run, Tensor x, Arena& arena, Stream& on) const {
  if (!slices_) return x;
  const Tensor all = arena.take(x.dtype, {rows_inside(x.row_count()), x.last_dim()});
  run.mesh.comm({Axis::Tp}).all_gather(all, x, on);
  return all;
}

Region::Sum Region::take_sum(Run& run, Arena& arena, int64_t rows, int64_t width) const {
  const Tensor result = arena.take(run.dtype, {rows_outside(rows), width});
  const Arena::Mark mark = run.scratch.mark();
  return {slices_ ? run.scratch.take(run.dtype, {rows, width}) : result, result, mark};
}

void Region::add_up(Run& run, const Sum& sum, Stream& on) const {
  if (alone()) return;
  Communicator& axis = run.mesh.comm({Axis::Tp});
  if (slices_)
    axis.reduce_scatter(sum.result, sum.partial, Reduce::Sum, on);
  else
    axis.all_reduce(sum.result, Reduce::Sum, on);
}

Tensor Region::gather_parts(Run& run, Tensor part, Arena& arena) const {
  const Tensor all = arena.take(part.dtype, {tp_ * part.elements()});
  run.mesh.comm({Axis::Tp}).all_gather(all, part, run.stream);
  return all;
}

void reduce_over_axis(Run& run, Tensor inout, Reduce reduction) {
  if (run.mesh.size(Axis::Tp) > 1) run.mesh.comm({Axis::Tp}).all_reduce(inout, reduction, run.stream);
}

}  // namespace trifold
