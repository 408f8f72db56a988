#include "tensor_parallel/column_product.h"

namespace trifold {

namespace {

void add_input_gradients(Run& run, Tensor dx, std::span<const ColumnGradient> products) {
  double beta = 0;
  for (const ColumnGradient& product : products) {
    run.ops.gemm(run.stream, dx, product.dy, false, product.w, false, 1.0, beta);
    beta = 1;
  }
}

void add_weight_gradients(Run& run, std::span<const ColumnGradient> products, Tensor all_x) {
  for (const ColumnGradient& product : products)
    run.ops.gemm(run.stream, product.dw, product.dy, true, all_x, false, 1.0, 1.0);
}

Region::Sum take_dx(const Region& region, Run& run, std::span<const ColumnGradient> products) {
  return region.take_sum(run, run.flow, products[0].dy.row_count(), products[0].w.last_dim());
}

}  // namespace

void column_product(Run& run, Tensor y, Tensor all_x, Tensor w, Tensor bias) {
  const bool biased = bias.rank() > 0;
  if (biased) run.ops.fill_rows(run.stream, y, bias.flat());
  run.ops.gemm(run.stream, y, all_x, false, w, true, 1.0, biased ? 1.0 : 0.0);
}

Tensor input_gradient(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products) {
  const Region::Sum dx = take_dx(region, run, products);
  add_input_gradients(run, dx.partial, products);
  run.show(name, "input gradient", dx.partial);
  region.add_up(run, dx, run.stream);
  run.show(name, "summed input gradient", dx.result);
  run.scratch.release(dx.mark);
  return dx.result;
}

void weight_gradient(const Region& region, Run& run, std::span<const ColumnGradient> products, Tensor x) {
  const Arena::Mark mark = run.scratch.mark();
  add_weight_gradients(run, products, region.gather_rows(run, x, run.scratch, run.stream));
  run.scratch.release(mark);
}

Tensor both_gradients(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products, Tensor x) {
  const Region::Sum dx = take_dx(region, run, products);
  run.side.wait(run.stream.record());
  const Tensor all_x = region.gather_rows(run, x, run.scratch, run.side);
  const Event gathered = run.side.record();
  add_input_gradients(run, dx.partial, products);
  run.show(name, "input gradient", dx.partial);
  run.side.wait(run.stream.record());
  region.add_up(run, dx, run.side);
  run.stream.wait(gathered);
  add_weight_gradients(run, products, all_x);
  run.stream.wait(run.side.record());
  run.show(name, "summed input gradient", dx.result);
  run.scratch.release(dx.mark);
  return dx.result;
}

}  // namespace trifold
