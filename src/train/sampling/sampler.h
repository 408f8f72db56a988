// Sampler continues a token sequence with a model, and says how likely the tokens of one are. One rank, one
// sequence at a time; every new token computes the whole window again (there is no key-value cache).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/function_ref.h"
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

// How likely a token is among all tokens with logits, and the likeliest ones.
struct TokenScore {
  int32_t token = 0;
  double log_probability = 0;
  std::vector<std::pair<int32_t, double>>
      best;  // the likeliest with their log-probabilities, in falling order
};
// `best`: how many of the likeliest to name; ties go to the lower index. A pure function.
TokenScore score_token(std::span<const double> logits, int32_t token, int64_t best);

class Sampler {
 public:
  // `replica` must hold the whole model (only data ranks, and weights that are not sharded) and outlive the sampler, which
  // has memory of its own for activations; `model` must be resolved. Only ids below `vocab`, the
  // tokenizer's size, are drawn; the model may have more.
  Sampler(Replica& replica, const ModelConfig& model, int64_t vocab);

  // The most tokens that the model is given: seq_length, since later positions were never trained.
  int64_t window() const { return window_; }

  // The logits of the token that follows `tokens` (at least one), [the model's vocabulary]; only the last window()
  // tokens are used.
  std::vector<double> logits(std::span<const int32_t> tokens);
  // Draws the token that has these logits. `position` is the index of the draw in a text: the same (seed, position)
  // gives the same draw.
  int32_t draw(std::span<const double> logits, const SamplingRule& rule, uint64_t seed,
               uint64_t position) const;

  // The scores of the tokens after the first, each after all those before it: one fewer than `tokens`, which are at most
  // one more than window().
  std::vector<TokenScore> score(std::span<const int32_t> tokens, int64_t best);

 private:
  Batch batch_of(std::span<const int32_t> tokens);
  // Calls body(logits) for rows [first, rows of the batch), a chunk of rows after the other.
  void each_logits(Stream& stream, Arena& keep, Arena& scratch, const Batch& batch, int64_t first,
                   FunctionRef<void(Tensor)> body);
  // Calls body(row's logits) for the same rows of tokens, in order.
  void each_row(std::span<const int32_t> tokens, int64_t first,
                FunctionRef<void(std::span<const double>)> body);

  Replica& replica_;
  int64_t window_;
  int64_t vocab_;        // ids that are drawn
  int64_t model_vocab_;  // ids that have logits
  Arena keep_;
  Arena scratch_;
  Buffer tokens_;
};

}  // namespace trifold
