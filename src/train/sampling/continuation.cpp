#include "train/sampling/continuation.h"

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

std::string continue_tokens(Sampler& sampler, const Tokenizer& tokenizer, std::vector<int32_t> tokens,
                            const Drawing& drawing, FunctionRef<bool(const DrawnToken&)> take) {
  IncrementalDecoder decoder(tokenizer, tokens);
  if (tokens.empty()) tokens = {start_token(tokenizer)};  // not shown
  bool goes_on = true;
  for (int64_t i = 0; goes_on && i < drawing.tokens; ++i) {
    const std::vector<double> logits = sampler.logits(tokens);
    const int32_t token =
        sampler.draw(logits, drawing.rule, drawing.seed, drawing.first + static_cast<uint64_t>(i));
    const bool ends = tokenizer.eod() && token == *tokenizer.eod();
    tokens.push_back(token);
    const std::string piece = ends ? std::string() : decoder.add(token);
    goes_on = take({token, ends, piece, logits}) && !ends;
  }
  return decoder.finish();
}

void continue_text(Sampler& sampler, const Tokenizer& tokenizer, const std::string& prompt,
                   const Drawing& drawing, FunctionRef<bool(std::string_view piece)> show) {
  std::vector<int32_t> tokens;
  tokenizer.encode(prompt, tokens);
  const std::string shown = replace_invalid_utf8(prompt);
  if (!show(std::string_view(shown).substr(0, stable_size(shown)))) return;
  show(continue_tokens(sampler, tokenizer, std::move(tokens), drawing,
                       [&](const DrawnToken& drawn) { return show(drawn.piece); }));
}

PromptSample::PromptSample(Replica& replica, const PretrainConfig& config)
    : prompt_(config.eval.sample_prompt.value_or("")),
      tokenizer_(open_tokenizer(config.data)),
      sampler_(replica, config.model, tokenizer_->vocab_size()) {}

std::string PromptSample::draw(const std::atomic<int>& signal) {
  std::string text;
  const Drawing drawing{{.temperature = 0}, 0, 0, kPromptTokens};
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
