#include "tensor_parallel/column_product.h"

namespace trifold {

Tensor input_gradient(const Region& region, Run& run, std::string_view name, Tensor dy, Tensor w) {
  const Region::Sum dx = region.take_sum(run, run.flow, dy.row_count(), w.last_dim());
  run.ops.gemm(run.stream, dx.partial, dy, false, w, false, 1.0, 0.0);
  run.show(name, "input gradient", dx.partial);
  region.add_up(run, dx, run.stream);
  run.show(name, "summed input gradient", dx.result);
  run.scratch.release(dx.mark);
  return dx.result;
}

void weight_gradient(const Region& region, Run& run, Tensor dw, Tensor dy, Tensor x) {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region.gather_rows(run, x, run.scratch, run.stream);
  run.ops.gemm(run.stream, dw, dy, true, all_x, false, 1.0, 1.0);
  run.scratch.release(mark);
}

Tensor both_gradients(const Region& region, Run& run, std::string_view name, Tensor dw, Tensor dy, Tensor w,
                      Tensor x) {
  const Region::Sum dx = region.take_sum(run, run.flow, dy.row_count(), w.last_dim());
  run.side.wait(run.stream.record());
  const Tensor all_x = region.gather_rows(run, x, run.scratch, run.side);
  const Event gathered = run.side.record();
  run.ops.gemm(run.stream, dx.partial, dy, false, w, false, 1.0, 0.0);
  run.show(name, "input gradient", dx.partial);
  run.side.wait(run.stream.record());
  region.add_up(run, dx, run.side);
  run.stream.wait(gathered);
  run.ops.gemm(run.stream, dw, dy, true, all_x, false, 1.0, 1.0);
  run.stream.wait(run.side.record());
  run.show(name, "summed input gradient", dx.result);
  run.scratch.release(dx.mark);
  return dx.result;
}

}  // namespace trifold
