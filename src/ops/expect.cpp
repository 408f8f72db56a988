#include "ops/expect.h"

#include "core/error.h"

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

void expect_matrix(const char* op, const char* name, const Tensor& tensor) {
  expect_float(op, name, tensor);
  check(tensor.rank() >= 1, "{}: {} is a scalar, but a tensor with at least one dim is needed", op, name);
}

}  // namespace trifold::contract
