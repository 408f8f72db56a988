// Building blocks for the checks of tensors (ops/contract.h).
#pragma once

#include "core/tensor.h"

namespace trifold::contract {

// Throws unless `tensor` (argument `name` of operation `op`) has this dtype and `elements` elements.
void expect(const char* op, const char* name, const Tensor& tensor, DType dtype, int64_t elements);

// Throws unless the elements of `tensor` are floating-point.
void expect_float(const char* op, const char* name, const Tensor& tensor);

// Throws unless `tensor` is a floating-point matrix, that is, has at least one dim.
void expect_matrix(const char* op, const char* name, const Tensor& tensor);

}  // namespace trifold::contract
