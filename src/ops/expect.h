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

// Throws unless `tensor` is a matrix [rows, columns] of `dtype`, or a narrow one (ops/narrow.h) if that is bf16.
void expect_factor(const char* op, const char* name, const Tensor& tensor, DType dtype, int64_t rows,
                   int64_t columns);

// A tensor of the same matrix in bf16 if `factor` is narrow, for checks of its shape; else `factor`.
Tensor widened(const Tensor& factor);

}  // namespace trifold::contract
