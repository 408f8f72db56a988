#include "train/continuation.h"

#include <vector>

#include "core/error.h"
#include "text/corpus.h"
#include "tokenize/incremental_decoder.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr int64_t kPromptTokens = 64;

// The token that precedes training texts.
int32_t start_token(const Tokenizer& tokenizer) {
  const bool bytes = dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr;
  return bytes ? '\n' : tokenizer.eod().value_or('\n');
}

}  // namespace

void continue_text(Sampler& sampler, const Tokenizer& tokenizer, const std::string& prompt,
                   const Drawing& drawing, FunctionRef<bool(std::string_view piece)> show) {
  std::vector<int32_t> tokens;
  tokenizer.encode(prompt, tokens);
  IncrementalDecoder decoder(tokenizer, tokens);
  const std::string shown = replace_invalid_utf8(prompt);
  bool goes_on = show(std::string_view(shown).substr(0, stable_size(shown)));
  if (tokens.empty()) tokens = {start_token(tokenizer)};  // not shown
  for (int64_t i = 0; goes_on && i < drawing.tokens; ++i) {
    const int32_t token =
        sampler.next(tokens, drawing.rule, drawing.seed, drawing.first + static_cast<uint64_t>(i));
    if (tokenizer.eod() && token == *tokenizer.eod()) break;
    tokens.push_back(token);
    goes_on = show(decoder.add(token));
  }
  show(decoder.finish());
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
