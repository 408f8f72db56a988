#include "nn/gathered_keys.h"

#include "nn/context_rows.h"

namespace trifold {

Tensor GatheredKeys::gather(Run& run, Tensor packed) const {
  const Shape shape{rows_of_all(run), columns_};
  const Tensor all = run.scratch.take(run.dtype, shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor by_rank = run.scratch.take(run.dtype, shape);
  const int64_t rows = packed.row_count();
  const Tensor mine = by_rank.rows(part_ * rows, (part_ + 1) * rows);
  move_columns(run, mine, 0, packed, first_, columns_);
  run.mesh.comm({Axis::Cp}).all_gather(by_rank, mine, run.stream);
  to_order(run, all, by_rank);
  run.scratch.release(mark);
  return all;
}

Tensor GatheredKeys::take_gradients(Run& run) const {
  return run.scratch.take(accumulate_type(run.dtype), {rows_of_all(run), columns_});
}

void GatheredKeys::scatter(Run& run, Tensor dpacked, Tensor gradients) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor by_rank = run.scratch.take(gradients.dtype, gradients.shape);
  to_ranks(run, by_rank, gradients);
  const int64_t rows = dpacked.row_count();
  Tensor mine = by_rank.rows(part_ * rows, (part_ + 1) * rows);
  run.mesh.comm({Axis::Cp}).reduce_scatter(mine, by_rank, Reduce::Sum, run.stream);
  if (mine.dtype != run.dtype) {
    const Tensor rounded = run.scratch.take(run.dtype, mine.shape);
    run.ops.convert(run.stream, rounded, mine);
    mine = rounded;
  }
  move_columns(run, dpacked, first_, mine, 0, columns_);
  run.scratch.release(mark);
}

}  // namespace trifold
