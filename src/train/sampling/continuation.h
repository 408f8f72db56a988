// Continues texts with a model: what `generate` prints, and what --sample-prompt reports while a model trains.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "tokenize/tokenizer.h"
#include "train/sampling/sampler.h"

namespace trifold {

// Which texts to draw, and how.
struct Drawing {
  SamplingRule rule;
  uint64_t seed = 0;
  uint64_t first = 0;  // index of the first draw (Sampler::next)
  int64_t tokens = 0;  // at most; the tokenizer's end token ends the text earlier
};

// The token that precedes the first token of a text: the one that ends documents, or else a line end.
int32_t start_token(const Tokenizer& tokenizer);

struct DrawnToken {
  int32_t token = 0;
  bool ends_text = false;          // the tokenizer's end token
  std::string_view piece;          // the text of whole characters that it completes
  std::span<const double> logits;  // from which it was drawn, [the model's vocabulary]
};
// Draws tokens after `tokens`, which may be none, until the text ends or `take` returns false. Returns the text of an
// incomplete character at the end.
std::string continue_tokens(Sampler& sampler, const Tokenizer& tokenizer, std::vector<int32_t> tokens,
                            const Drawing& drawing, FunctionRef<bool(const DrawnToken&)> take);

// Passes `prompt`, and then its continuation as it is drawn, to `show`, in pieces of whole characters. Ends early once
// `show` returns false.
void continue_text(Sampler& sampler, const Tokenizer& tokenizer, const std::string& prompt,
                   const Drawing& drawing, FunctionRef<bool(std::string_view piece)> show);

// The text of --sample-prompt.
class PromptSample {
 public:
  // References must outlive the object. `config` must be resolved.
  PromptSample(Replica& replica, const PretrainConfig& config);

  // The prompt with the likeliest continuation by the current weights, which must not be in flight. The part that was
  // complete when `signal` became different from zero, if it did. Not collective.
  std::string draw(const std::atomic<int>& signal);

 private:
  std::string prompt_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Sampler sampler_;
};

// BadInput if --sample-prompt is given and the tokenizer of `data` is unknown.
void check_prompt(const EvalConfig& eval, const DataConfig& data);

}  // namespace trifold
