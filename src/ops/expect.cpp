#include "ops/expect.h"

#include "core/error.h"
#include "ops/narrow.h"

namespace trifold::contract {

void expect(const char* op, const char* name, const Tensor& tensor, DType dtype, int64_t elements) {
  if (tensor.dtype == dtype && tensor.elements() == elements) return;
  fail("{}: {} is {} {}, but {} with {} elements is needed", op, name, name_of(tensor.dtype),
       to_string(tensor.shape), name_of(dtype), elements);
}

void expect_float(const char* op, const char* name, const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::F64:
    case DType::F32:
    case DType::BF16:
    case DType::F16:
      return;
    default:
      fail("{}: {} is {}, but a floating-point type is needed", op, name, name_of(tensor.dtype));
  }
}

void expect_factor(const char* op, const char* name, const Tensor& tensor, DType dtype, int64_t rows,
                   int64_t columns) {
  if (!is_narrow(tensor)) return expect(op, name, tensor, dtype, rows * columns);
  constexpr int64_t kUnit = 16;
  const bool fits = dtype == DType::BF16 && tensor.shape == narrow_shape(rows, columns);
  if (!fits)
    fail("{}: {} is narrow with {} rows of {} columns, but bf16 with {} rows of {} columns is needed", op,
         name, tensor.row_count(), factor_columns(tensor), rows, columns);
  check(rows % kUnit == 0 && columns % kUnit == 0,
        "{}: {} is narrow, so its rows and columns must be multiples of {}, not {} and {}", op, name, kUnit,
        rows, columns);
}

Tensor widened(const Tensor& factor) {
  if (!is_narrow(factor)) return factor;
  return {factor.data, DType::BF16, {factor.row_count(), factor_columns(factor)}};
}

void expect_matrix(const char* op, const char* name, const Tensor& tensor) {
  expect_float(op, name, tensor);
  check(tensor.rank() >= 1, "{}: {} is a scalar, but a tensor with at least one dim is needed", op, name);
}

}  // namespace trifold::contract
