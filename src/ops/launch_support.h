// What launchers share: choosing the kernels of a type (`kernels` of wide ones alone, `storage_kernels` of
// all), checking tensors, and sizes of parts.
#pragma once

#include <algorithm>

#include "ops/kernels.h"
#include "ops/ops.h"

namespace trifold::cpu {

template <class T>
const Kernels<T>& kernels(const KernelTable& table);
template <>
inline const Kernels<float>& kernels<float>(const KernelTable& table) {
  return table.f32;
}
template <>
inline const Kernels<double>& kernels<double>(const KernelTable& table) {
  return table.f64;
}

template <class T>
const StorageKernels<T>& storage_kernels(const KernelTable& table);
template <>
inline const StorageKernels<float>& storage_kernels<float>(const KernelTable& table) {
  return table.stored_f32;
}
template <>
inline const StorageKernels<double>& storage_kernels<double>(const KernelTable& table) {
  return table.stored_f64;
}
template <>
inline const StorageKernels<Bfloat16>& storage_kernels<Bfloat16>(const KernelTable& table) {
  return table.stored_bf16;
}
template <>
inline const StorageKernels<Float16>& storage_kernels<Float16>(const KernelTable& table) {
  return table.stored_f16;
}

template <class T>
const RecommenderKernels<T>& recommender_kernels(const KernelTable& table);
template <>
inline const RecommenderKernels<float>& recommender_kernels<float>(const KernelTable& table) {
  return table.recommender_f32;
}
template <>
inline const RecommenderKernels<double>& recommender_kernels<double>(const KernelTable& table) {
  return table.recommender_f64;
}

// Elements one worker must get, by the price of an element.
constexpr int64_t kCheapGrain = 16384;  // an addition, bound by memory
constexpr int64_t kMathGrain = 4096;    // an exponential, a Philox word

// Rows of `columns` that hold about `elements` elements.
inline int64_t row_grain(int64_t columns, int64_t elements) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, columns));
}

// body(begin, end) over rows of `columns`; a worker gets at least `elements` elements.
template <class Body>
void over_rows(Stream& stream, int64_t rows, int64_t columns, int64_t elements, Body body) {
  stream.run([pool = &stream.pool(), rows, grain = row_grain(columns, elements), body] {
    pool->parallel_for(rows, grain, body);
  });
}

// body(begin, end) over columns, in strips of whole cache lines. Few rows are not worth a second worker.
template <class Body>
void over_columns(Stream& stream, int64_t rows, int64_t columns, Body body) {
  const int64_t wanted = kCheapGrain / std::max<int64_t>(1, rows);
  const int64_t grain = std::max<int64_t>(32, (wanted + 31) / 32 * 32);
  stream.run([pool = &stream.pool(), columns, grain, body] { pool->parallel_for(columns, grain, body); });
}

// Throws unless `tensor` (argument `name` of operation `op`) has this dtype and this many elements.
void expect(const char* op, const char* name, const Tensor& tensor, DType dtype, int64_t elements);

// Throws unless `tensor` is of floats.
void expect_float(const char* op, const char* name, const Tensor& tensor);

// Throws unless `tensor` is a floating-point matrix, that is, has at least one dim.
void expect_matrix(const char* op, const char* name, const Tensor& tensor);

// The kernels' form of `how`; throws where the probability is not in [0, 1).
DropRule drop_rule(const char* op, const Dropout& how);

}  // namespace trifold::cpu
