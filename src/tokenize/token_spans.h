// Tokenizes a text and records the bytes of each token.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/interval.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// Tokens, each with the bytes [begin, end) of the unit of text that contains it: a byte for bytes, a word between white
// space for a SentencePiece model, otherwise a run of letters and digits or a punctuation mark. The units are passed to
// the tokenizer one by one.
struct TokenSpans {
  std::vector<int32_t> ids;
  std::vector<Interval> bytes;
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

TokenSpans tokenize_with_spans(std::string_view text, const Tokenizer& tokenizer);

}  // namespace trifold
