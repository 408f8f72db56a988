// The adjoint of y = x W^T where W's rows (the columns of y) are cut over the tensor axis, as the linear
// layers that enter a region and the output head have it. x [Ro, in] is whole or a row slice
// (tensor_parallel/regions.h), dy [R, out/tp], w [out/tp, in].
#pragma once

#include <string_view>

#include "tensor_parallel/regions.h"

namespace trifold {

// dx [Ro, in], in run.flow: the sum over the axis of dy w. `name` is the layer's.
Tensor input_gradient(const Region& region, Run& run, std::string_view name, Tensor dy, Tensor w);

// dw += dy^T x. Only this rank's rows of x were kept: a slice is gathered once more.
void weight_gradient(const Region& region, Run& run, Tensor dw, Tensor dy, Tensor x);

// Both, with the collectives on run.side: the rows of x are gathered while dx is computed, and dx is summed
// while dw is. The same bits as the two apart.
Tensor both_gradients(const Region& region, Run& run, std::string_view name, Tensor dw, Tensor dy, Tensor w,
                      Tensor x);

}  // namespace trifold
