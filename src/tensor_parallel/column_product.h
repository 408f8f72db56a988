// y = x W^T + b and its adjoint where W's rows (the columns of y) are cut over the tensor axis, as the layers
// that enter a region have it. Several such products may share their input: then rows are gathered, and dx is
// summed over the axis, once for all of them. x [Ro, in] is whole or a row slice (tensor_parallel/regions.h),
// dy [R, out/tp], w [out/tp, in].
#pragma once

#include <span>
#include <string_view>

#include "tensor_parallel/regions.h"

namespace trifold {

// y [R, out/tp] of all rows of x [R, in]; `bias` [out/tp], or Tensor{} for none.
void column_product(Run& run, Tensor y, Tensor all_x, Tensor w, Tensor bias);

// One of the products that share an input. A part of the adjoint reads `w` or writes `dw`, and `db` where
// there is a bias, as it needs; `adds` says whether it adds to what is there.
struct ColumnGradient {
  Tensor dy, w, dw, db;
  bool adds = true;
};

// dx [Ro, in], in run.flow: the sum over the axis, and over the products, of dy w. `name` is
// the layer's.
Tensor input_gradient(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products);

// dw = dy^T x, db = column sums of dy, or += them. Only this rank's rows of x were kept: a slice is gathered
// once more.
void weight_gradient(const Region& region, Run& run, std::span<const ColumnGradient> products, Tensor x);

// Both, with the collectives on run.side: the rows of x are gathered while dx is computed, and dx is summed
// while dw is. The same bits as the two apart.
Tensor both_gradients(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products, Tensor x);

}  // namespace trifold
