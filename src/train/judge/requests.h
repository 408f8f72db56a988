// Requests for the log-likelihood of tokens after others, and how questions and texts become requests: by the convention
// of EleutherAI's lm-evaluation-harness 0.4 for causal models, so that figures can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/tokenizer.h"

namespace trifold {

// The model reads all tokens but the last and is asked how likely the last `scored` are, each after those before it.
struct ScoringRequest {
  std::vector<int32_t> tokens;  // more than `scored`
  int64_t scored = 0;           // at least 1

  int64_t inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }
  int64_t first_scored() const {
    return inputs() - scored;
  }  // the input that predicts the first scored token
};

class RequestEncoder {
 public:
  // `prefix` precedes a continuation without context, and texts. The model is given at most `most_inputs` tokens.
  // `tokenizer` must outlive this object. No special tokens are added.
  RequestEncoder(const Tokenizer& tokenizer, int32_t prefix, int64_t most_inputs)
      : tokenizer_(tokenizer), prefix_(prefix), most_inputs_(most_inputs) {}

  // How likely `continuation` is after `context`. White space at the end of the context belongs to the continuation.
  // Both are encoded together; of these tokens, those after as many as the context alone has are scored, after the tokens
  // of the context alone. If there are too many tokens, the first are left out. BadInput if no token is left to score, or if the continuation is
  // too long.
  ScoringRequest pair(std::string_view context, std::string_view continuation) const;

  // Requests that score every token of `text` once. The first sees the prefix alone before its tokens, later ones the
  // last token of the request before, and the last, whose tokens are fewer, as many as there is room for. BadInput for a
  // text without tokens.
  std::vector<ScoringRequest> rolling(std::string_view text) const;

 private:
  std::vector<int32_t> encode(std::string_view text) const;

  const Tokenizer& tokenizer_;
  int32_t prefix_;
  int64_t most_inputs_;
};

}  // namespace trifold
