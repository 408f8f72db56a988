// Building blocks for the checks of tensors (ops/contract.h).
#pragma once

#include "ops/forms.h"

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

// Throws unless rows or a turned form are present, and each present form has the shape that a matrix [rows, columns] of
// `dtype` has in it: turned forms and sums only if that is bf16.
void expect_forms(const char* op, const char* name, const Forms& forms, DType dtype, int64_t rows,
                  int64_t columns);

// For the forms of a result: throws too if there are rows of a floating-point type and other forms.
void expect_result_forms(const char* op, const char* name, const Forms& forms, DType dtype, int64_t rows,
                         int64_t columns);

// A tensor of the same matrix in bf16 if `factor` is narrow or turned, for checks of its shape; else its rows.
Tensor widened(const Forms& factor);

}  // namespace trifold::contract
