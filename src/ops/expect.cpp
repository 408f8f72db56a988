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

void expect_forms(const char* op, const char* name, const Forms& forms, DType dtype, int64_t rows,
                  int64_t columns) {
  const bool turned = is_present(forms.turned), sums = is_present(forms.sums);
  check(is_present(forms.rows) || turned, "{}: {} has neither rows nor a turned form", op, name);
  if (is_present(forms.rows)) expect_factor(op, name, forms.rows, dtype, rows, columns);
  if (!turned && !sums) return;
  check(dtype == DType::BF16 && (!turned || forms.turned.shape == turned_shape(rows, columns)),
        "{}: {} has a turned form or sums of {} {}, but of bf16 with {} rows of {} columns is needed", op,
        name, name_of(dtype), turned ? to_string(forms.turned.shape) : "", rows, columns);
  constexpr int64_t kUnit = 16;
  check(rows % kUnit == 0 && columns % kUnit == 0,
        "{}: {} is turned or summed, so its rows and columns must be multiples of {}, not {} and {}", op,
        name, kUnit, rows, columns);
  if (sums) expect(op, name, forms.sums, DType::F32, scale_blocks(rows) * columns);
}

void expect_result_forms(const char* op, const char* name, const Forms& forms, DType dtype, int64_t rows,
                         int64_t columns) {
  expect_forms(op, name, forms, dtype, rows, columns);
  check(forms.are_wide() || !is_present(forms.rows) || is_narrow(forms.rows),
        "{}: {} has rows in {} beside other forms, which no operation writes", op, name,
        name_of(forms.rows.dtype));
}

Tensor widened(const Forms& factor) {
  if (is_present(factor.rows) && !is_narrow(factor.rows)) return factor.rows;
  void* const data = is_present(factor.rows) ? factor.rows.data : factor.turned.data;
  return {data, DType::BF16, {rows_of(factor), columns_of(factor)}};
}

void expect_matrix(const char* op, const char* name, const Tensor& tensor) {
  expect_float(op, name, tensor);
  check(tensor.rank() >= 1, "{}: {} is a scalar, but a tensor with at least one dim is needed", op, name);
}

}  // namespace trifold::contract
