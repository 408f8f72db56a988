// Sampler continues a token sequence with a model. One rank, one sequence at a time; every new token computes the whole
// window again (there is no key-value cache).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/replica.h"

namespace trifold {

struct SamplingRule {
  double temperature = 1;  // 0 takes the most likely token
  int64_t top_k = 0;       // only the k most likely tokens; 0: all
  double top_p = 1;        // only the most likely tokens that together reach this probability
};

// Draws an index from softmax(logits / temperature) restricted by top_k and top_p, with the random value `uniform` in
// [0, 1). A pure function; ties go to the lower index.
int64_t draw_token(std::span<const double> logits, const SamplingRule& rule, double uniform);

class Sampler {
 public:
  // `replica` must hold the whole model (only data ranks, and weights that are not sharded) and outlive the sampler, which
  // has memory of its own for activations; `model` must be resolved. Only ids below `vocab`, the
  // tokenizer's size, are drawn; the model may have more.
  Sampler(Replica& replica, const ModelConfig& model, int64_t vocab);

  // The token that follows `tokens` (at least one); only the last seq_length tokens are used, since later positions
  // were never trained. `position` is the index of the draw in a text: the same (seed, position) gives the same draw.
  int32_t next(std::span<const int32_t> tokens, const SamplingRule& rule, uint64_t seed, uint64_t position);

 private:
  Tensor last_logits(Stream& stream, Arena& keep, Arena& scratch, const Batch& batch);

  Replica& replica_;
  int64_t window_;
  int64_t vocab_;
  Arena keep_;
  Arena scratch_;
  Buffer tokens_;
};

}  // namespace trifold
