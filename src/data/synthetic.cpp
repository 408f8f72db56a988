#include "data/synthetic.h"

namespace trifold {

// Positions run to seq_length inclusive: the label of the last position is one token further.
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

}  // namespace trifold
