// Uniformly random tokens, a pure function of (seed, sample, position). For benchmarks and tests.
#pragma once

#include <memory>

#include "config/fields/config.h"
#include "core/random.h"
#include "data/batch.h"

namespace trifold {

class SyntheticTokens final : public DataSource {
 public:
  SyntheticTokens(int64_t seq_length, int64_t vocab_size, uint64_t seed)
      : seq_length_(seq_length), vocab_size_(vocab_size), key_(philox_key(seed, "synthetic tokens")) {}
  int64_t seq_length() const override { return seq_length_; }
  int64_t samples() const override { return int64_t{1} << 40; }
  void read(Batch& batch, int64_t first_sample) const override;

 private:
  int32_t token(int64_t sample, int64_t position) const;

  int64_t seq_length_;
  int64_t vocab_size_;
  PhiloxKey key_;
};

// Synthetic sentence pairs for BERT: samples of all lengths, in which about one token in seven is masked (replaced by
// token 0), the first always. The last bit of a token decides whether the second sentence follows.
class SyntheticPairs final : public DataSource {
 public:
  SyntheticPairs(int64_t seq_length, int64_t vocab_size, uint64_t seed)
      : tokens_(seq_length, vocab_size, seed), key_(philox_key(seed, "synthetic pairs")) {}
  int64_t seq_length() const override { return tokens_.seq_length(); }
  int64_t samples() const override { return tokens_.samples(); }
  void read(Batch& batch, int64_t first_sample) const override;

 private:
  SyntheticTokens tokens_;
  PhiloxKey key_;
};

}  // namespace trifold
