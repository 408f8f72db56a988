#include "config/fields/layer_pattern.h"

#include <algorithm>
#include <cctype>

#include "config/fields/number.h"
#include "core/error.h"

namespace trifold {

namespace {

//   sum = term { "+" term }    term = factor { "*" number } or number "*" factor    factor = "(" sum ")" or list
class PatternReader {
 public:
  PatternReader(std::string_view text, int64_t layers) : whole_(text), rest_(text), layers_(layers) {}

  std::vector<bool> read() {
    std::vector<bool> all = sum(0);
    skip_blanks();
    if (!rest_.empty()) wrong("more after its list");
    return all;
  }

 private:
  static constexpr int kMostDepth = 16;  // nested parentheses

  [[noreturn]] void wrong(std::string_view what) const {
    bad_input("'{}' has {} at character {}", whole_, what, whole_.size() - rest_.size() + 1);
  }
  void skip_blanks() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool take(char wanted) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool at_digit() {
    skip_blanks();
    return !rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_.front())) != 0;
  }
  int64_t number() {
    constexpr size_t kMostDigits = 9;
    if (!at_digit()) wrong("no number");
    size_t digits = 0;
    while (digits < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[digits])) != 0) ++digits;
    if (digits > kMostDigits) wrong("too large a number");
    const int64_t value = parse_int64(rest_.substr(0, digits));
    rest_.remove_prefix(digits);
    return value;
  }
  // A pattern of more entries than there are layers is wrong in any case: its length is counted, not its entries.
  std::vector<bool> repeated(const std::vector<bool>& part, int64_t times) const {
    if (part.empty()) return {};
    if (times * static_cast<int64_t>(part.size()) > layers_) too_long();
    std::vector<bool> all;
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  [[noreturn]] void too_long() const {
    bad_input("'{}' has more entries than the {} layers", whole_, layers_);
  }

  std::vector<bool> sum(int depth) {
    std::vector<bool> all = term(depth);
    while (take('+')) {
      const std::vector<bool> more = term(depth);
      all.insert(all.end(), more.begin(), more.end());
      if (static_cast<int64_t>(all.size()) > layers_) too_long();
    }
    return all;
  }
  std::vector<bool> term(int depth) {
    if (at_digit()) {
      const int64_t times = number();
      if (!take('*')) wrong("no * after a number");
      return repeated(factor(depth), times);
    }
    std::vector<bool> all = factor(depth);
    while (take('*')) all = repeated(all, number());
    return all;
  }
  std::vector<bool> factor(int depth) {
    if (take('(')) {
      if (depth == kMostDepth) wrong("too many parentheses");
      std::vector<bool> all = sum(depth + 1);
      if (!take(')')) wrong("no closing parenthesis");
      return all;
    }
    if (!take('[')) wrong("no list");
    std::vector<bool> all;
    if (take(']')) return all;
    do {
      const bool one = take('1');
      if (!one && !take('0')) wrong("an entry other than 0 and 1");
      all.push_back(one);
      if (static_cast<int64_t>(all.size()) > layers_) too_long();
    } while (take(','));
    if (!take(']')) wrong("no comma or closing bracket");
    return all;
  }

  std::string_view whole_, rest_;
  int64_t layers_;
};

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::vector<bool> parse_layer_pattern(std::string_view text, int64_t layers, EveryNth number) {
  if (is_number(text)) {
    const int64_t each = parse_int64(text);
    if (each < 1) bad_input("'{}' is not possible; every layer is 1, every second one 2", text);
    std::vector<bool> all;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool chosen = (number == EveryNth::First ? layer : layer + 1) % each == 0;
      all.push_back(chosen != (number == EveryNth::AllButLast));
    }
    return all;
  }
  std::vector<bool> all = PatternReader(text, layers).read();
  if (static_cast<int64_t>(all.size()) != layers)
    bad_input("'{}' has {} entries for {} layers", text, all.size(), layers);
  return all;
}

}  // namespace trifold
