// y = x W^T + b and its adjoint with W's rows (the columns of y) cut over the tensor axis, as in the layers
// that enter a region. Several such products may share their input: then rows are gathered, and dx is summed
// over the axis, once for all of them. x [Ro, in] is whole or a row slice (tensor_parallel/regions.h), dy [R,
// out/tp], w [out/tp, in].
#pragma once

#include <span>
#include <string_view>

#include "tensor_parallel/regions.h"

namespace trifold {

// y [R, out/tp] for all rows of x [R, in]; `bias` [out/tp], or Tensor{} for none.
void column_product(Run& run, Tensor y, Tensor all_x, Tensor w, Tensor bias);

// One of the products that share an input. Each part of the adjoint uses only the members it needs: it reads
// `w`, or writes `dw` and, if there is a bias, `db`; `adds` says whether it adds to their content.
struct ColumnGradient {
  Tensor dy, w, dw, db;
  bool adds = true;
};

// dx [Ro, in], in run.flow: the sum of dy w over the axis and over the products. `name` is the layer's.
Tensor input_gradient(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products);

// dw = dy^T x, db = column sums of dy, or += them. Only this rank's rows of x were kept: a slice is gathered
// again.
void weight_gradient(const Region& region, Run& run, std::span<const ColumnGradient> products, Tensor x);

// Both, with the collectives on run.side: the rows of x are gathered while dx is computed, and dx is summed
// while dw is computed. The bits are those of the two separate calls.
Tensor both_gradients(const Region& region, Run& run, std::string_view name,
                      std::span<const ColumnGradient> products, Tensor x);

}  // namespace trifold
