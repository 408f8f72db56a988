// Makes text from outside safe to show on a terminal or in a log.
//
// A name, field or line of a file may contain anything: control characters and escape sequences that change
// what a terminal shows or does, marks that change the direction of writing, bytes that are not text.
// Messages quote such content with `printable`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trifold {

// The maximum length, in bytes, of a quoted text in a message.
constexpr size_t kMostShownBytes = 200;

// One line that shows `content`. A new line, tab or carriage return becomes \n, \t or \r; another control
// character of ASCII, or a byte that does not belong to UTF-8, becomes \xNN; a character that is invisible or
// that controls its neighbours becomes \u{NNNN}. Everything else is unchanged, backslashes included, so the result
// is readable but cannot be parsed. Content of more than `most_bytes` bytes is cut after a character, and its full
// length is appended.
std::string printable(std::string_view content, size_t most_bytes = kMostShownBytes);

// A whole message: like `printable`, but new lines and tabs stay and nothing is cut. Used where messages are
// shown, so that text which a message quotes without `printable` is harmless as well.
std::string printable_message(std::string_view message);

}  // namespace trifold
