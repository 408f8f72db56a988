// Continues texts with a model: what `generate` prints, and what --sample-prompt reports while a model trains.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "tokenize/incremental_decoder.h"
#include "tokenize/tokenizer.h"
#include "train/sampling/sampler.h"
#include "train/sampling/stop_texts.h"

namespace trifold {

// Which texts to draw, and how.
struct Drawing {
  SamplingRule rule;
  uint64_t seed = 0;
  uint64_t first = 0;                    // index of the first draw (Sampler::draw)
  int64_t tokens = 0;                    // at most
  std::vector<int32_t> end_tokens = {};  // end the text, besides the tokenizer's end token
  std::vector<std::string> stops = {};   // texts that end the text; they are not part of it
};

// The token that precedes the first token of a text: the one that ends documents, or else a line end.
int32_t start_token(const Tokenizer& tokenizer);

struct DrawnToken {
  int32_t token = 0;
  std::string piece;           // text of whole characters that is now known to be part of the continuation
  std::vector<double> logits;  // from which it was drawn, before any rule; [the model's vocabulary]
};

// Continuation draws the tokens that follow others, one by one.
class Continuation {
 public:
  // `tokens` may be none. `sampler` and `tokenizer` must outlive this object.
  Continuation(Sampler& sampler, const Tokenizer& tokenizer, std::vector<int32_t> tokens, Drawing drawing);

  // Draws a token; none if the text has ended or has all its tokens.
  std::optional<DrawnToken> next();
  // The text after the last piece: what was held back as the possible beginning of a stop text, and the text of an
  // incomplete character.
  std::string rest();
  // Whether an end token or a stop text has ended the text.
  bool stopped() const { return ended_ || stops_.found(); }
  int64_t drawn() const { return drawn_; }
  // The given tokens and those drawn, except an end token.
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  bool ends(int32_t token) const;

  Sampler& sampler_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
  Drawing drawing_;
  IncrementalDecoder decoder_;
  StopTexts stops_;
  int64_t drawn_ = 0;
  bool ended_ = false;
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
