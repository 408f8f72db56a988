// Sampler continues a token sequence with a model, and says how likely the tokens of one are, one sequence at a time.
// With a cache of keys and values (nn/key_cache.h) it computes only the tokens that the sequence did not have when it was
// last asked; without one, or once a sequence is longer than the window, every new token computes the whole window again.
//
// If the model is cut over tensor ranks, one rank asks and the others follow it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "nn/key_cache.h"
#include "train/replica.h"
#include "train/sampling/sampling_rule.h"

namespace trifold {

// How likely a token is among all tokens with logits, and the likeliest ones.
struct TokenScore {
  int32_t token = 0;
  double log_probability = 0;
  std::vector<std::pair<int32_t, double>>
      best;  // the likeliest with their log-probabilities, in falling order
};
// `best`: how many of the likeliest to name; ties go to the lower index. A pure function.
TokenScore score_token(std::span<const double> logits, int32_t token, int64_t best);

enum class Caching : uint8_t { None, KeysAndValues };

class Sampler {
 public:
  // `replica` must hold the whole model (only data and tensor ranks, and weights that are not sharded) and outlive the
  // sampler, which has memory of its own for activations and the cache; `model` must be resolved. Only ids below `vocab`,
  // the tokenizer's size, are drawn; the model may have more. There is no cache if a layer has an obstacle, or for
  // weights that change.
  Sampler(Replica& replica, const ModelConfig& model, int64_t vocab, Caching caching = Caching::None);

  // The most tokens that the model is given: seq_length, since later positions were never trained.
  int64_t window() const { return window_; }
  // The cache's bytes on this rank; 0 without one.
  size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }
  // Why there is no cache although one was asked for; empty if there is one.
  const std::string& obstacle() const { return obstacle_; }

  // The logits of the token that follows `tokens` (at least one), [the model's vocabulary]; only the last window()
  // tokens are used.
  std::vector<double> logits(std::span<const int32_t> tokens);
  // Draws the token that follows `tokens`, from these logits. `position` is the index of the draw in a text: the same
  // (seed, position) gives the same draw.
  int32_t draw(std::span<const double> logits, std::span<const int32_t> tokens, const SamplingRule& rule,
               uint64_t seed, uint64_t position) const;
  // Empties the cache, so that the next logits have the bits of a new sampler's. Products of one row and of many round
  // differently.
  void forget() { held_.clear(); }

  // The scores of the tokens after the first, each after all those before it: one fewer than `tokens`, which are at most
  // one more than window().
  std::vector<TokenScore> score(std::span<const int32_t> tokens, int64_t best);

  // For tensor ranks. The first computes its part of what the first rank asks until that is dismissed; the first rank
  // dismisses the others.
  void follow();
  void dismiss();

 private:
  // Forward of `tokens` from position `known` on, whose earlier positions are in the cache if `cached`; the logits of the
  // positions from `first` on are read.
  struct Pass {
    int32_t tokens, known, first, cached;
  };
  static constexpr int64_t kPassNumbers = 4;

  Batch batch_of(std::span<const int32_t> tokens, const Pass& pass);
  // Calls body(logits) for rows [first, rows of the batch), a chunk of rows after the other.
  void each_logits(Stream& stream, Arena& keep, Arena& scratch, const Batch& batch, int64_t first,
                   bool cached, FunctionRef<void(Tensor)> body);
  // Calls body(row's logits) for the positions of a pass, in order, after sending the pass to the other tensor ranks.
  void each_row(std::span<const int32_t> tokens, const Pass& pass,
                FunctionRef<void(std::span<const double>)> body);
  void compute(std::span<const int32_t> tokens, const Pass& pass,
               FunctionRef<void(std::span<const double>)> body);
  // The logits [parts * rows, V / parts] of all tensor ranks, one rank after the other.
  Tensor of_all_ranks(Tensor logits);
  // Sends tokens and pass from the first tensor rank to the others.
  void tell(std::span<int32_t> numbers);
  // The number of first tokens that the cache holds. The last token is always computed.
  int64_t known(std::span<const int32_t> tokens) const;

  Replica& replica_;
  int64_t window_;
  int64_t vocab_;        // ids that are drawn
  int64_t model_vocab_;  // ids that have logits
  int parts_;            // tensor ranks
  std::string obstacle_;
  std::optional<KeyCache> cache_;
  std::vector<int32_t> held_;  // the tokens whose keys and values the cache has
  Arena keep_;
  Arena scratch_;
  Buffer tokens_;
};

}  // namespace trifold
