// Characters in the text of a regular expression for ICU, also where case does not matter. ICU's own "(?i"
// has the case of the Unicode version of the host's library; here it is written out as Oniguruma knows it
// (tokenize/unicode_tables.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenize/code_points.h"

namespace trifold {

// One character, outside of sets and in them.
std::string pattern_of(char32_t c);
// A set: `open` is "" or "^".
std::string pattern_of(std::string_view open, const CodePointSet& set);

// Where case does not matter. As items of a set: the character and those that are the same.
std::string folded_items(char32_t c);
// As an atom: these, or the sequence of characters that is the same ("ss" for U+00DF).
std::string folded_atom(char32_t c);
// Several characters that are the same as one: that one, or they; absent for all other sequences.
std::optional<std::string> folded_sequence(std::u32string_view characters);

}  // namespace trifold
