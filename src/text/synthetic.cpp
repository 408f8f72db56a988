#include "text/synthetic.h"

#include <algorithm>

namespace trifold {

// Positions run to seq_length inclusive: the last one is the label of the last input.
int32_t SyntheticTokens::token(int64_t sample, int64_t position) const {
  const auto element = static_cast<uint64_t>(sample * (seq_length_ + 1) + position);
  const uint64_t word = philox_word(key_, element);
  return static_cast<int32_t>((word * static_cast<uint64_t>(vocab_size_)) >> 32);
}

void SyntheticTokens::read(Batch& batch, int64_t first_sample) const {
  batch.first_sample = first_sample;
  int64_t at = 0;
  for (int64_t b = 0; b < batch.samples(); ++b)
    for (int64_t t = 0; t < seq_length_; ++t, ++at) {
      batch.tokens.as<int32_t>()[at] = token(first_sample + b, t);
      batch.labels.as<int32_t>()[at] = token(first_sample + b, t + 1);
      batch.positions.as<int32_t>()[at] = static_cast<int32_t>(t);
      batch.loss_weight.as<float>()[at] = 1.0F;
    }
}

void SyntheticPairs::read(Batch& batch, int64_t first_sample) const {
  tokens_.read(batch, first_sample);
  const int64_t length = seq_length();
  for (int64_t b = 0; b < batch.samples(); ++b) {
    const auto sample = static_cast<uint64_t>(first_sample + b);
    const auto real = static_cast<int64_t>(1 + philox_word(key_, sample) % static_cast<uint64_t>(length));
    int32_t* tokens = batch.tokens.as<int32_t>() + b * length;
    int32_t* labels = batch.labels.as<int32_t>() + b * length;
    std::copy_n(tokens, length, labels);
    for (int64_t t = 0; t < length; ++t) {
      const bool masked = t == 0 || (t < real && (labels[t] + t) % 7 == 0);
      if (masked || t >= real) tokens[t] = 0;
      batch.loss_weight.as<float>()[b * length + t] = masked ? 1.0F : 0.0F;
      batch.token_types.as<int32_t>()[b * length + t] = 2 * t > real ? 1 : 0;
    }
    batch.lengths.as<int32_t>()[b] = static_cast<int32_t>(real);
    batch.pair_labels.as<int32_t>()[b] = tokens[real - 1] % 2;
    batch.pair_weight.as<float>()[b] = 1;
  }
}

}  // namespace trifold
