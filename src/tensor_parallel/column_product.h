// Column-parallel product: y = x W^T + b and its adjoint, with W's rows (the columns of y) cut over the tensor axis, as
// in layers that enter a region. Several products may share their input; rows are then gathered, and dx is summed over
// the axis, once for all products. x [Ro, in] is whole or a row slice (tensor_parallel/regions.h), dy [R, out/tp], w
// [out/tp, in].
#pragma once

#include <span>
#include <string_view>

#include "nn/product_weight.h"
#include "tensor_parallel/regions.h"

namespace trifold {

// y [R, out/tp] for all rows of x [R, in]; `bias` [out/tp], or Tensor{} for none.
void column_product(Run& run, Tensor y, Tensor all_x, const ProductWeight& w, Tensor bias);

// One of the products that share an input. input_gradient reads `w`; weight_gradient assigns `dw` and, if there is a
// bias, `db`, or adds to them if `adds`; a frozen weight has no `dw`. Each leaves the other members alone.
struct ColumnGradient {
  Forms dy;
  const ProductWeight* w = nullptr;
  Tensor dw, db;
  bool adds = true;
};

// Memory in run.flow for dy [rows, columns] as products in 8 bits read it (ops/forms.h): its rows if dx is computed
// (Run::wants_dx) and, if the weight is `trained`, its turned form and, with a bias, its sums.
Forms take_gradient(Run& run, int64_t rows, int64_t columns, bool trained, bool biased);

// Returns dx [Ro, in], in run.flow: the sum of dy w over the axis and over the products. `name` is the layer's. `add_to`
// adds further terms to this rank's partial sum, dx [R, in].
Tensor input_gradient(
    const Region& region, Run& run, std::string_view name, std::span<const ColumnGradient> products,
    FunctionRef<void(Tensor dx)> add_to = [](Tensor) {});

// dw = dy^T x, db = column sums of dy, or += these. x is this rank's rows; a row slice is gathered again.
void weight_gradient(const Region& region, Run& run, std::span<const ColumnGradient> products, Tensor x);

// Both gradients, with the collectives on run.side: the rows of x are gathered while dx is computed, and dx is summed
// while dw is computed. The bits are the same as with two separate calls.
Tensor both_gradients(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products, Tensor x);

}  // namespace trifold
