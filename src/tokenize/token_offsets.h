// Tokenizes a text as a whole and finds the bytes of the text that each token stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/interval.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// The bytes of `text` that each of its tokens stands for, in order and without overlap; a space that the tokenizer put
// before the text belongs to none. nullopt if the tokenizer changes the text (lower case, composed characters), so that
// tokens cannot be found in it.
std::optional<std::vector<Interval>> find_tokens(std::string_view text, const std::vector<int32_t>& ids,
                                                 const Tokenizer& tokenizer);

// For each token of `text`, whether a byte of it is in one of `spans`, which are in order and do not overlap. In a text
// that the tokenizer changes, a span begins and ends with the first token by which the text up to there and the whole
// text differ.
std::vector<uint8_t> tokens_in_spans(std::string_view text, const std::vector<int32_t>& ids,
                                     const std::vector<Interval>& spans, const Tokenizer& tokenizer);

}  // namespace trifold
