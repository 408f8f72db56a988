#include "train/sampling/continuation.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/corpus.h"
#include "tokenize/incremental_decoder.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr int64_t kPromptTokens = 64;

}  // namespace

int32_t start_token(const Tokenizer& tokenizer) {
  const bool bytes = dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr;
  return bytes ? '\n' : tokenizer.eod().value_or('\n');
}

namespace {

// Ids that only the model has, beyond the tokenizer's, have no text.
std::vector<int32_t> with_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<int32_t> kept;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(kept),
               [&](int32_t id) { return id < tokenizer.vocab_size(); });
  return kept;
}

}  // namespace

Continuation::Continuation(Sampler& sampler, const Tokenizer& tokenizer, std::vector<int32_t> tokens,
                           Drawing drawing)
    : sampler_(sampler),
      tokenizer_(tokenizer),
      tokens_(std::move(tokens)),
      drawing_(std::move(drawing)),
      decoder_(tokenizer, with_text(tokenizer, tokens_)),
      stops_(drawing_.stops) {
  if (tokens_.empty()) tokens_ = {start_token(tokenizer)};  // not shown
}

bool Continuation::ends(int32_t token) const {
  const std::vector<int32_t>& more = drawing_.end_tokens;
  return (tokenizer_.eod() && token == *tokenizer_.eod()) ||
         std::find(more.begin(), more.end(), token) != more.end();
}

std::optional<DrawnToken> Continuation::next() {
  if (stopped() || drawn_ == drawing_.tokens) return std::nullopt;
  DrawnToken drawn;
  drawn.logits = sampler_.logits(tokens_);
  drawn.token = sampler_.draw(drawn.logits, tokens_, drawing_.rule, drawing_.seed,
                              drawing_.first + static_cast<uint64_t>(drawn_));
  ++drawn_;
  ended_ = ends(drawn.token);
  if (ended_) return drawn;
  tokens_.push_back(drawn.token);
  drawn.piece = stops_.add(decoder_.add(drawn.token));
  return drawn;
}

std::string Continuation::rest() {
  const std::string piece = stops_.add(decoder_.finish());
  return piece + stops_.finish();
}

void continue_text(Sampler& sampler, const Tokenizer& tokenizer, const std::string& prompt,
                   const Drawing& drawing, FunctionRef<bool(std::string_view piece)> show) {
  std::vector<int32_t> tokens;
  tokenizer.encode(prompt, tokens);
  const std::string shown = replace_invalid_utf8(prompt);
  if (!show(std::string_view(shown).substr(0, stable_size(shown)))) return;
  Continuation continuation(sampler, tokenizer, std::move(tokens), drawing);
  bool goes_on = true;
  while (goes_on) {
    const std::optional<DrawnToken> drawn = continuation.next();
    if (!drawn) break;
    goes_on = show(drawn->piece);
  }
  show(continuation.rest());
}

PromptSample::PromptSample(Replica& replica, const PretrainConfig& config)
    : prompt_(config.eval.sample_prompt.value_or("")),
      tokenizer_(open_tokenizer(config.data)),
      sampler_(replica, config.model, tokenizer_->vocab_size()) {}

std::string PromptSample::draw(const std::atomic<int>& signal) {
  std::string text;
  const Drawing drawing{.rule = {.temperature = 0}, .tokens = kPromptTokens};
  continue_text(sampler_, *tokenizer_, prompt_, drawing, [&](std::string_view piece) {
    text += piece;
    return signal.load() == 0;
  });
  return text;
}

void check_prompt(const EvalConfig& eval, const DataConfig& data) {
  if (eval.sample_prompt && open_tokenizer(data) == nullptr)
    bad_input(
        "--sample-prompt: the tokens of these data have no texts; "
        "give --tokenizer-type and its files, or leave it out");
}

}  // namespace trifold
