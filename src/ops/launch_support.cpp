#include "ops/launch_support.h"

#include <cmath>

namespace trifold::cpu {

DropRule drop_rule(const char* op, const Dropout& how) {
  if (how.probability == 0) return {};
  const double threshold = std::ceil(how.probability * 4294967296.0);
  check(how.probability > 0 && threshold < 4294967296.0,
        "{}: the dropout probability is {}, but must be in [0, 1)", op, how.probability);
  return {true, how.key.lo, how.key.hi, static_cast<uint32_t>(threshold), 1 / (1 - how.probability)};
}

UniformRule uniform_rule(double low, double high, const Dropout& which) {
  return {{true, which.key.lo, which.key.hi}, low, (high - low) / 4294967296.0};
}

LateIndex first_element(const char* op, const Dropout& how) {
  if (how.sample.data == nullptr) return {how.first_element};
  expect(op, "sample", how.sample, DType::I64, 1);
  return {how.first_element, how.sample.as<int64_t>(), static_cast<uint64_t>(how.sample_elements)};
}

LateIndex first_head(const char* op, const Attention& how) {
  const auto row = static_cast<uint64_t>(how.first_sample * how.global_heads + how.first_head);
  if (how.sample.data == nullptr) return {row};
  expect(op, "sample", how.sample, DType::I64, 1);
  return {row, how.sample.as<int64_t>(), static_cast<uint64_t>(how.global_heads)};
}

LateFactor late(const char* op, const Factor& factor) {
  if (factor.number.data == nullptr) return {factor.constant};
  expect(op, "factor", factor.number, DType::F64, 1);
  return {factor.constant, factor.number.as<double>()};
}

VocabularyPart vocabulary_part(int64_t columns, int64_t first_id, int64_t vocab) {
  return {columns, std::clamp<int64_t>(vocab - first_id, 0, columns), first_id};
}

RotaryShape rotary_shape(const Tensor& y, const Tensor& x, const Rotary& how) {
  const auto pairs = static_cast<int64_t>(how.frequencies.size());
  return {x.last_dim(), y.last_dim(),           how.columns, how.heads, how.head_dim,
          pairs,        how.frequencies.data(), how.inverse};
}

LatentShape latent_shape(const LatentHeads& how) {
  return {how.heads,    how.plain, how.turned() / 2, how.value, how.width, how.frequencies.data(),
          how.key_scale};
}

WeightCopy copy_of(const char* op, const Tensor& p, const Tensor& copy) {
  if (copy.data == nullptr) return {};
  const bool narrow = p.dtype == DType::F32 && (copy.dtype == DType::BF16 || copy.dtype == DType::F16);
  expect(op, "copy", copy, narrow ? copy.dtype : p.dtype, p.elements());
  if (!narrow) return {CopyType::Same, copy.data};
  return {copy.dtype == DType::BF16 ? CopyType::Bfloat16 : CopyType::Float16, copy.data};
}

}  // namespace trifold::cpu
