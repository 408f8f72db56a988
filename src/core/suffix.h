// The suffix of a file's name, compared without regard to case: ".JSONL" equals ".jsonl".
#pragma once

#include <algorithm>
#include <cctype>
#include <string_view>

namespace trifold {

// Whether `name` ends in `suffix`, which must be in lower case.
inline bool has_suffix(std::string_view name, std::string_view suffix) {
  return name.size() >= suffix.size() &&
         std::equal(suffix.begin(), suffix.end(), name.end() - static_cast<std::ptrdiff_t>(suffix.size()),
                    [](char wanted, char found) {
                      return std::tolower(static_cast<unsigned char>(found)) == wanted;
                    });
}

}  // namespace trifold
