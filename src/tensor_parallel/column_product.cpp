#include "tensor_parallel/column_product.h"

#include <algorithm>

namespace trifold {

namespace {

void add_input_gradients(Run& run, Tensor dx, std::span<const ColumnGradient> products) {
  double beta = 0;
  for (const ColumnGradient& product : products) {
    const Arena::Mark mark = run.scratch.mark();
    run.ops.affine_backward_input(run.stream, dx, product.dy.rows, product.w->read(run), beta);
    run.scratch.release(mark);
    beta = 1;
  }
}

void add_weight_gradients(Run& run, std::span<const ColumnGradient> products, Tensor all_x) {
  for (const ColumnGradient& product : products)
    if (product.dw.rank() > 0)
      run.ops.affine_backward_weight(run.stream, product.dw,
                                     product.db.rank() > 0 ? product.db.flat() : product.db, product.dy,
                                     all_x, product.adds);
}

bool any_trains(std::span<const ColumnGradient> products) {
  return std::any_of(products.begin(), products.end(),
                     [](const ColumnGradient& product) { return product.dw.rank() > 0; });
}

Region::Sum take_dx(const Region& region, Run& run, std::span<const ColumnGradient> products) {
  return region.take_sum(run, *run.flow, products[0].dy.rows.row_count(), products[0].w->columns());
}

}  // namespace

void column_product(Run& run, Tensor y, Tensor all_x, const ProductWeight& w, Tensor bias) {
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine(run.stream, y, all_x, w.read(run), bias.rank() > 0 ? bias.flat() : bias);
  run.scratch.release(mark);
}

Forms take_gradient(Run& run, int64_t rows, int64_t columns, bool trained, bool biased) {
  Forms dy;
  if (run.wants_dx) dy.rows = run.take(*run.flow, rows, columns, true);
  if (trained) dy.turned = run.flow->take(DType::U8, turned_shape(rows, columns));
  if (trained && biased) dy.sums = run.flow->take(DType::F32, sums_shape(rows, columns));
  return dy;
}

Tensor input_gradient(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products, FunctionRef<void(Tensor)> add_to) {
  const Region::Sum dx = take_dx(region, run, products);
  add_input_gradients(run, dx.partial, products);
  add_to(dx.partial);
  run.show(name, "input gradient", dx.partial);
  region.add_up(run, dx, run.stream);
  run.show(name, "summed input gradient", dx.result);
  run.scratch.release(dx.mark);
  return dx.result;
}

void weight_gradient(const Region& region, Run& run, std::span<const ColumnGradient> products, Tensor x) {
  if (!any_trains(products)) return;
  const Arena::Mark mark = run.scratch.mark();
  add_weight_gradients(run, products, region.gather_rows(run, x, run.scratch, run.stream));
  run.scratch.release(mark);
}

Tensor both_gradients(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products, Tensor x) {
  if (region.alone()) {  // no collectives to hide, and graphs cannot contain events
    const Tensor dx = input_gradient(region, run, name, products);
    weight_gradient(region, run, products, x);
    return dx;
  }
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
