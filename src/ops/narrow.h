// Narrow factors: rows of elements in 8 bits, as products of linear layers read them under --fp8-recipe blockwise
// (DeepSeek-V3, arXiv 2412.19437, section 3.3).
//
// A matrix [R, C] in narrow form is one U8 tensor [R, C + 4 L], L = ceil(C / 128), whose memory holds
//   R C codes          E4M3 (kernels/fp8.h), row by row
//   L R scales         f32: scale (b, r) belongs to elements [128 b, 128 b + 128) of row r
// in this order, as cuBLASLt reads them. R and C are multiples of 16. An element is its code times its scale. A scale is
// a power of two, the least for which the largest magnitude of its 128 elements is at most 448, so scaling is exact and
// a code is the element rounded to nearest, ties to even. An element that is not finite makes its 128 elements NaN.
//
// Operations may write a result in narrow form instead of bf16: y of layer_norm and rms_norm, and, as Forms (ops/forms.h),
// y of gated and activations, dx of gated_backward and of gradients of activations. It has the bits of the bf16 result,
// narrowed afterwards (write_forms). Products of linear layers take x and dy in either form. Only tables of products in 8
// bits with scales of blocks (cuda/fp8_blocks.h, narrow_cpu_ops) and counting tables (ops/counting.h) have these
// operations.
//
// The gradient of a weight sums over rows, so its factors are turned: the columns of a narrow matrix, rounded again with
// a scale for each 128 rows. That rounding is exact except for numbers that become subnormal. A turned matrix is the
// narrow form of the transpose, U8 [1, C, R + 4 ceil(R / 128)]. A product turns a factor that has no turned form.
//
// The gradient of a bias sums the elements of dy before they are rounded to 8 bits; if dy has nothing but narrow rows, it
// sums these.
#pragma once

#include "core/tensor.h"
#include "ops/forms.h"
#include "ops/ops.h"

namespace trifold {

constexpr int64_t kScaleBlock = 128;  // elements with one scale

constexpr int64_t scale_blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

// Bytes of a row in narrow form, and the inverse.
constexpr int64_t narrow_bytes(int64_t columns) {
  return columns + static_cast<int64_t>(sizeof(float)) * scale_blocks(columns);
}
constexpr int64_t columns_of_bytes(int64_t bytes) {
  constexpr int64_t kBytesOfBlock = narrow_bytes(kScaleBlock);
  return bytes - static_cast<int64_t>(sizeof(float)) * ((bytes + kBytesOfBlock - 1) / kBytesOfBlock);
}

inline bool is_narrow(const Tensor& tensor) { return tensor.dtype == DType::U8 && tensor.rank() == 2; }
inline Shape narrow_shape(int64_t rows, int64_t columns) { return {rows, narrow_bytes(columns)}; }
// The columns of a matrix in either form.
inline int64_t factor_columns(const Tensor& matrix) {
  return is_narrow(matrix) ? columns_of_bytes(matrix.last_dim()) : matrix.last_dim();
}
inline int64_t factor_elements(const Tensor& matrix) { return matrix.row_count() * factor_columns(matrix); }

// The turned form and the sums of a matrix [rows, columns] (ops/forms.h), and the extents of a matrix that has rows or a
// turned form.
inline Shape turned_shape(int64_t rows, int64_t columns) { return {1, columns, narrow_bytes(rows)}; }
inline Shape sums_shape(int64_t rows, int64_t columns) { return {scale_blocks(rows), columns}; }
inline int64_t rows_of(const Forms& matrix) {
  return is_present(matrix.rows) ? matrix.rows.row_count() : columns_of_bytes(matrix.turned.last_dim());
}
inline int64_t columns_of(const Forms& matrix) {
  return is_present(matrix.rows) ? factor_columns(matrix.rows) : matrix.turned.dim(1);
}

// The processor's table with narrow factors: it computes what a device with 8-bit products computes, but the order of
// sums, from operands in bf16 that it rounds as above. For tests of convergence without a GPU; slower than bf16.
const OpTable& narrow_cpu_ops();

}  // namespace trifold
