// Cuts text into pieces for tokenizers that must not get all of it at once.
#pragma once

#include <string_view>

#include "core/function_ref.h"

namespace trifold {

// Calls body(line) for each line of `text`, including its line end. A line longer than `longest` bytes is passed in
// pieces that end after a space if there is one, and never inside a UTF-8 character.
void for_each_line(std::string_view text, size_t longest, FunctionRef<void(std::string_view)> body);

// The position at which to cut `text`, which is longer than `longest` and has no line end before that, by the same
// rule.
size_t cut_before(std::string_view text, size_t longest);

// A kind of cut, at a line end between may_end_line() and may_begin_line() characters, by which the pieces have the
// same words as the whole text.
enum class LineCut { None, BeforeLineEnd, AfterLineEnd };

// The first such cut in `text` from `from` on, 0 if there is none.
size_t find_line_cut(std::string_view text, size_t from, LineCut place);

// Excludes marks that may close a token like "<mask>", which could include the white space after it.
constexpr bool may_end_line(char c) { return c > ' ' && c < 0x7F && c != '>' && c != ']'; }

constexpr bool may_begin_line(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// The longest piece given to a tokenizer at a time.
inline constexpr size_t kLongestLine = size_t{1} << 16;

}  // namespace trifold
