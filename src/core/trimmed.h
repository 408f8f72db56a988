// trimmed: a text without leading and trailing blanks.
#pragma once

#include <string_view>

namespace trifold {

// The part of `text` between its first and its last character that is not one of `blanks`.
constexpr std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r") {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace trifold
