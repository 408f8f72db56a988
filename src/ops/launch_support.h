// Functions that launchers share: the kernels for a type (`kernels` for f32 and f64, `storage_kernels` for all types),
// sizes of parts and, also for the CUDA entries, conversion of arguments to the form that kernels take.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/expect.h"
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

// The minimum elements per worker, by the cost of an element.
constexpr int64_t kCheapGrain = 16384;  // an addition, limited by memory
constexpr int64_t kMathGrain = 4096;    // an exponential, a Philox word

// Calls body(begin, end) for parts of the elements, each of at least `grain`.
template <class Body>
void over_elements(Stream& stream, int64_t count, int64_t grain, Body body) {
  stream.run([pool = &stream.pool(), count, grain, body] { pool->parallel_for(count, grain, body); });
}

// The number of parts of size `part` that cover `extent`.
inline int64_t parts(int64_t extent, int64_t part) { return (extent + part - 1) / part; }

// Scratch memory of the calling thread, of unspecified content. It grows to the largest request and is reused by every
// call with the same T.
template <class T>
T* scratch(int64_t count) {
  static thread_local std::vector<T> memory;
  if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
  return memory.data();
}

// The number of rows of `columns` elements that hold about `elements` elements, at least 1.
inline int64_t row_grain(int64_t columns, int64_t elements) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, columns));
}

// Calls body(begin, end) for parts of `rows` rows of `columns` elements; a worker gets about `elements` or more.
template <class Body>
void over_rows(Stream& stream, int64_t rows, int64_t columns, int64_t elements, Body body) {
  stream.run([pool = &stream.pool(), rows, grain = row_grain(columns, elements), body] {
    pool->parallel_for(rows, grain, body);
  });
}

// Calls body(begin, end) for strips of columns, in whole cache lines; the fewer rows, the wider the strips.
template <class Body>
void over_columns(Stream& stream, int64_t rows, int64_t columns, Body body) {
  const int64_t wanted = kCheapGrain / std::max<int64_t>(1, rows);
  const int64_t grain = std::max<int64_t>(32, (wanted + 31) / 32 * 32);
  stream.run([pool = &stream.pool(), columns, grain, body] { pool->parallel_for(columns, grain, body); });
}

// Sets elements [begin, end) of each array to zero, before sums over rows that are assigned, not accumulated.
template <class... T>
void set_to_zero(int64_t begin, int64_t end, T*... sums) {
  (std::fill(sums + begin, sums + end, T(0)), ...);
}

using contract::expect;

// ---- Conversion of an operation's arguments, other than tensors, to the form that kernels take. Invalid arguments
// ---- throw an Error that names `op`.

// Throws if the probability is not in [0, 1).
DropRule drop_rule(const char* op, const Dropout& dropout);
QuantizedRows quantized_rows(const QuantizedForm& form);
UniformRule uniform_rule(double low, double high, const Dropout& which);
// The global index of the tensor's first element (Dropout::first_element, Dropout::sample).
LateIndex first_element(const char* op, const Dropout& dropout);
// The global index of the first sample and head, in [samples, global_heads].
LateIndex first_head(const char* op, const Attention& attention);
LateFactor late(const char* op, const Factor& factor);

VocabularyPart vocabulary_part(int64_t columns, int64_t first_id, int64_t vocab);
RotaryShape rotary_shape(const Tensor& y, const Tensor& x, const Rotary& rotation);
LatentShape latent_shape(const LatentHeads& latent);

// The constants of an update rule, computed once for all elements. Throw if the rule is invalid.
AdamWRule fold(const char* op, const AdamW& rule);
LambRule fold(const char* op, const Lamb& rule);
SgdRule fold(const char* op, const Sgd& rule);
AdagradRule fold(const char* op, const Adagrad& rule);
RowRule fold(const char* op, const SparseRule& rule);

// The folded rule, with the address of its values if these are in device memory.
template <class Rule>
auto late(const char* op, const Rule& rule) {
  LateRule<decltype(fold(op, rule))> late{fold(op, rule)};
  const Tensor& numbers = rule.numbers;
  if (numbers.data == nullptr) return late;
  expect(op, "numbers", numbers, DType::F64, kRuleNumbers);
  late.numbers = reinterpret_cast<decltype(late.numbers)>(numbers.as<double>());
  return late;
}

RowAction action_of(SparseKind kind);
WeightCopy copy_of(const char* op, const Tensor& p, const Tensor& copy);

// The number of partial sums of chunk_squares.
inline int64_t chunks_of(int64_t elements) { return (elements + kNormChunk - 1) / kNormChunk; }

}  // namespace trifold::cpu
