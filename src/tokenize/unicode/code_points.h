// CodePointSet is a set of characters. PackedNumbers reads the tables of tokenize/unicode/unicode_tables.inc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// Reads integers as tools/reference/unicode_tables.py packs them: five bits per digit, lowest first.
class PackedNumbers {
 public:
  explicit PackedNumbers(std::string_view text) : text_(text) {}
  bool done() const { return text_.empty(); }
  uint32_t next();

 private:
  std::string_view text_;
};

class CodePointSet {
 public:
  CodePointSet() = default;
  // `packed`: alternating begins and ends of ranges, as differences.
  explicit CodePointSet(std::string_view packed);
  explicit CodePointSet(std::vector<char32_t> boundaries) : boundaries_(std::move(boundaries)) {}

  bool contains(char32_t c) const;
  const std::vector<char32_t>& boundaries() const { return boundaries_; }
  // The ranges as written inside the [ ] of an ICU regular expression: "\x{30}-\x{39}...".
  std::string ranges() const;

 private:
  std::vector<char32_t> boundaries_;  // ascending: begin, end, begin, end, ...
};

}  // namespace trifold
