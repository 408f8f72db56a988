// Continues texts with a model: what `generate` prints, and what --sample-prompt reports while a model trains.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "tokenize/tokenizer.h"
#include "train/sampler.h"

namespace trifold {

// Which texts to draw, and how.
struct Drawing {
  SamplingRule rule;
  uint64_t seed = 0;
  uint64_t first = 0;  // index of the first draw (Sampler::next)
  int64_t tokens = 0;  // at most; the tokenizer's end token ends the text earlier
};

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
