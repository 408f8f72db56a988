// Zip archives, made in memory for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/crc32.h"

namespace trifold::test {

inline void append_number(std::string& text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
}

// A zip archive with stored members in this order.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string text, directory;
  for (const auto& [name, content] : members) {
    std::string common;  // the fields that the local header and the directory's entry share
    for (const int value : {20, 0, 0, 0, 0}) append_number(common, static_cast<uint64_t>(value), 2);
    append_number(common, crc32_of(0, content.data(), content.size()), 4);
    append_number(common, content.size(), 4);
    append_number(common, content.size(), 4);
    append_number(common, name.size(), 2);
    append_number(common, 0, 2);
    directory += "PK\1\2" + std::string("\x14\0", 2) + common + std::string(10, '\0');
    append_number(directory, text.size(), 4);
    directory += name;
    text += "PK\3\4" + common + name + content;
  }
  const size_t begin = text.size();
  text += directory + "PK\5\6" + std::string(4, '\0');
  append_number(text, members.size(), 2);
  append_number(text, members.size(), 2);
  append_number(text, directory.size(), 4);
  append_number(text, begin, 4);
  return text + std::string(2, '\0');
}

}  // namespace trifold::test
