#include "tokenize/unicode/code_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace trifold {

namespace {

constexpr int kBits = 5;
constexpr uint32_t kMore = 1U << kBits;  // set in all digits of a number but the last

uint32_t digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<uint32_t>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<uint32_t>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0') + 52;
  return c == '+' ? 62 : 63;
}

}  // namespace

uint32_t PackedNumbers::next() {
  uint32_t value = 0;
  for (int shift = 0; !text_.empty(); shift += kBits) {
    const uint32_t bits = digit(text_.front());
    text_.remove_prefix(1);
    value |= (bits & (kMore - 1)) << shift;
    if ((bits & kMore) == 0) break;
  }
  return value;
}

CodePointSet::CodePointSet(std::string_view packed) {
  char32_t at = 0;
  for (PackedNumbers numbers(packed); !numbers.done();) boundaries_.push_back(at += numbers.next());
}

bool CodePointSet::contains(char32_t c) const {
  const auto after = std::upper_bound(boundaries_.begin(), boundaries_.end(), c);
  return std::distance(boundaries_.begin(), after) % 2 != 0;
}

std::string CodePointSet::ranges() const {
  std::string text;
  for (size_t i = 0; i + 1 < boundaries_.size(); i += 2)
    fmt::format_to(std::back_inserter(text), "\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(boundaries_[i]),
                   static_cast<uint32_t>(boundaries_[i + 1] - 1));
  return text;
}

}  // namespace trifold
