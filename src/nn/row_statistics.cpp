#include "nn/row_statistics.h"

namespace trifold {

namespace {

// Bytes of an activation, rounded up so that the statistics after it are aligned.
int64_t aligned_bytes(int64_t rows, int64_t width, DType dtype) {
  const auto element = static_cast<int64_t>(size_of(dtype));
  const auto unit = static_cast<int64_t>(size_of(accumulate_type(dtype)));
  return (rows * width * element + unit - 1) / unit * unit;
}

}  // namespace

Shape shape_with_statistics(int64_t rows, int64_t width, DType dtype, int64_t count) {
  if (count == 0) return {rows, width};
  const int64_t row = width * static_cast<int64_t>(size_of(dtype));
  const int64_t bytes =
      aligned_bytes(rows, width, dtype) + count * static_cast<int64_t>(size_of(accumulate_type(dtype)));
  return {(bytes + row - 1) / row, width};
}

WithStatistics::WithStatistics(Tensor tensor, int64_t rows, int64_t count)
    : all(tensor), activation(tensor.rows(0, rows)) {
  if (tensor.shape != shape_with_statistics(rows, tensor.last_dim(), tensor.dtype, count))
    fail("{} does not hold {} rows with {} statistics", to_string(tensor.shape), rows, count);
  auto* base = static_cast<std::byte*>(tensor.data);
  const auto begin = static_cast<size_t>(aligned_bytes(rows, tensor.last_dim(), tensor.dtype));
  statistics = {base == nullptr ? nullptr : base + begin, accumulate_type(tensor.dtype), {count}};
}

}  // namespace trifold
