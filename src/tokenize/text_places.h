// Tokens of a text with their positions in it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/interval.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// Tokens, each with the bytes [begin, end) of the text that it stands for: the byte itself for bytes; for a
// SentencePiece model the word between white space that it belongs to; otherwise the run of letters and
// digits, or the punctuation mark, that it belongs to. These are passed to the tokenizer one by one.
struct PlacedTokens {
  std::vector<int32_t> ids;
  std::vector<Interval> bytes;
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

PlacedTokens tokenize_with_places(std::string_view text, const Tokenizer& tokenizer);

}  // namespace trifold
