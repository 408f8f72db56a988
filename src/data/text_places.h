// Text as tokens that know where in it they come from.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/split.h"
#include "data/tokenizer.h"

namespace trifold {

// Tokens, and of each the bytes [begin, end) of the text it stands for: of a byte itself; of the pieces of a
// SentencePiece model the word between white space that they are of; otherwise the run of letters and digits,
// or the sign, that they are of. The tokenizer is given these units one by one.
struct PlacedTokens {
  std::vector<int32_t> ids;
  std::vector<Interval> bytes;
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

PlacedTokens tokenize_with_places(std::string_view text, const Tokenizer& tokenizer);

}  // namespace trifold
