#include "ops/launch_support.h"

#include <cmath>

namespace trifold::cpu {

DropRule drop_rule(const char* op, const Dropout& dropout) {
  if (dropout.probability == 0) return {};
  const double threshold = std::ceil(dropout.probability * 4294967296.0);
  check(dropout.probability > 0 && threshold < 4294967296.0,
        "{}: the dropout probability is {}, but must be in [0, 1)", op, dropout.probability);
  return {true, dropout.key.lo, dropout.key.hi, static_cast<uint32_t>(threshold),
          1 / (1 - dropout.probability)};
}

QuantizedRows quantized_rows(const QuantizedForm& form) {
  QuantizedRows rows;
  rows.four_bits = form.type == QuantizedType::Nf4;
  rows.along_columns = form.along_columns;
  rows.scale_shift = form.along_columns ? 0 : std::countr_zero(static_cast<uint64_t>(kQuantizedBlock));
  rows.columns = form.columns;
  rows.row_bytes = form.row_bytes();
  rows.row_scales = form.along_columns ? form.columns : form.row_blocks();
  rows.matrix_rows = form.matrix_rows;
  rows.bands = form.bands_of_matrix();
  rows.band_rows = kQuantizedBlock;
  return rows;
}

UniformRule uniform_rule(double low, double high, const Dropout& which) {
  return {{true, which.key.lo, which.key.hi}, low, (high - low) / 4294967296.0};
}

LateIndex first_element(const char* op, const Dropout& dropout) {
  if (dropout.sample.data == nullptr) return {dropout.first_element};
  expect(op, "sample", dropout.sample, DType::I64, 1);
  return {dropout.first_element, dropout.sample.as<int64_t>(),
          static_cast<uint64_t>(dropout.sample_elements)};
}

LateIndex first_head(const char* op, const Attention& attention) {
  const auto row =
      static_cast<uint64_t>(attention.first_sample * attention.global_heads + attention.first_head);
  if (attention.sample.data == nullptr) return {row};
  expect(op, "sample", attention.sample, DType::I64, 1);
  return {row, attention.sample.as<int64_t>(), static_cast<uint64_t>(attention.global_heads)};
}

LateFactor late(const char* op, const Factor& factor) {
  if (factor.number.data == nullptr) return {factor.constant};
  expect(op, "factor", factor.number, DType::F64, 1);
  return {factor.constant, factor.number.as<double>()};
}

VocabularyPart vocabulary_part(int64_t columns, int64_t first_id, int64_t vocab) {
  return {columns, std::clamp<int64_t>(vocab - first_id, 0, columns), first_id};
}

RotaryShape rotary_shape(const Tensor& y, const Tensor& x, const Rotary& rotation) {
  const auto pairs = static_cast<int64_t>(rotation.frequencies.size());
  return {x.last_dim(),
          y.last_dim(),
          rotation.columns,
          rotation.heads,
          rotation.head_dim,
          pairs,
          rotation.frequencies.data(),
          rotation.inverse,
          rotation.scale};
}

LatentShape latent_shape(const LatentHeads& latent) {
  return {latent.heads,    latent.plain, latent.turned() / 2,
          latent.value,    latent.width, latent.frequencies.data(),
          latent.key_scale};
}

WeightCopy copy_of(const char* op, const Tensor& p, const Tensor& copy) {
  if (copy.data == nullptr) return {};
  const bool narrow = p.dtype == DType::F32 && (copy.dtype == DType::BF16 || copy.dtype == DType::F16);
  expect(op, "copy", copy, narrow ? copy.dtype : p.dtype, p.elements());
  if (!narrow) return {CopyType::Same, copy.data};
  return {copy.dtype == DType::BF16 ? CopyType::Bfloat16 : CopyType::Float16, copy.data};
}

}  // namespace trifold::cpu
