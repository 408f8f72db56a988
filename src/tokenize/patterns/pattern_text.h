// Writes characters into the text of an ICU regular expression, case-insensitively if needed. ICU's own "(?i" depends
// on the Unicode version of the host's library; here case folding is spelled out as in Oniguruma
// (tokenize/unicode/unicode_tables.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenize/unicode/code_points.h"

namespace trifold {

// One character, outside or inside a set.
std::string pattern_of(char32_t c);
// A set: `open` is "" or "^".
std::string pattern_of(std::string_view open, const CodePointSet& set);

// A case-insensitive character as items of a set: the character and its case variants.
std::string folded_items(char32_t c);
// A case-insensitive character as an atom, which also matches an equivalent sequence ("ss" for U+00DF).
std::string folded_atom(char32_t c);
// An atom for a sequence that is case-equivalent to a single character; absent for all other sequences.
std::optional<std::string> folded_sequence(std::u32string_view characters);

}  // namespace trifold
