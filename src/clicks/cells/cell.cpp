#include "clicks/cells/cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <type_traits>

namespace trifold {

namespace {

bool is_true(std::string_view text) { return text == "True" || text == "true" || text == "TRUE"; }
bool is_false(std::string_view text) { return text == "False" || text == "false" || text == "FALSE"; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t digits_at(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

// Digits with the point after `point` of them, where zeros may have to be filled in. Zeros at the end of a fraction are
// left out.
std::string_view write_out(bool negative, std::string digits, int point, std::string& room) {
  const auto before = static_cast<size_t>(std::max(point, 0));
  while (digits.size() > before && digits.ends_with('0')) digits.pop_back();
  if (digits.find_first_not_of('0') == std::string::npos) return room = "0";
  room = negative ? "-" : "";
  if (point <= 0)
    room += "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  else if (digits.size() <= before)
    room += digits + std::string(before - digits.size(), '0');
  else
    room += digits.insert(before, 1, '.');
  return room;
}

// The spelling of a text in scientific notation, with one digit before the point: 1e5, 2.50E+00. A first digit of 0 has
// only zeros after it. An exponent has up to three digits, so that few hexadecimal hashes look like this.
std::optional<std::string_view> spell_scientific(std::string_view text, std::string& room) {
  constexpr size_t kMostExponentDigits = 3;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  std::string digits(1, text[0]);
  text.remove_prefix(1);
  if (text.starts_with('.')) {
    const size_t count = digits_at(text.substr(1));
    digits += text.substr(1, count);
    text.remove_prefix(1 + count);
  }
  if (!text.starts_with('e') && !text.starts_with('E')) return std::nullopt;
  text.remove_prefix(1);
  if (digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
  if (text.starts_with('+')) text.remove_prefix(1);
  const bool small = text.starts_with('-');
  const size_t count = digits_at(text.substr(small ? 1 : 0));
  if (count == 0 || count > kMostExponentDigits || count + (small ? 1 : 0) != text.size())
    return std::nullopt;
  int exponent = 0;
  std::from_chars(text.data(), text.data() + text.size(), exponent);
  return write_out(negative, std::move(digits), exponent + 1, room);
}

// The spelling of a whole number with a sign or a point: +2, 2., 2.00, -0.
std::optional<std::string_view> spell_whole(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const size_t count = digits_at(text);
  if (count == 0 || (count > 1 && text[0] == '0')) return std::nullopt;
  const std::string_view rest = text.substr(count);
  if (!rest.empty() && (rest[0] != '.' || rest.find_first_not_of('0', 1) != std::string_view::npos))
    return std::nullopt;
  if (text[0] == '0') return text.substr(0, 1);
  return negative ? std::string_view(text.data() - 1, count + 1) : text.substr(0, count);
}

// Whether x is a whole number whose shortest text has all of its digits.
template <std::floating_point T>
bool is_short_whole(T x) {
  constexpr T kExact = std::is_same_v<T, float> ? T{1 << 24} : static_cast<T>(int64_t{1} << 53);
  return std::trunc(x) == x && std::abs(x) < kExact;
}

template <std::floating_point T>
std::string_view spelling_of_float(T x, std::string& room) {
  if (is_short_whole(x)) return room = fmt::format("{}", static_cast<int64_t>(x));
  if (!std::isfinite(x)) return room = fmt::format("{}", x);
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, x, std::chars_format::scientific).ptr;
  return *spell_scientific({text, static_cast<size_t>(end - text)}, room);
}

// The fewest digits that give the same Float16.
double shortest(Float16 x) {
  const auto exact = static_cast<double>(x);
  for (int digits = 1; digits <= 5 && std::isfinite(exact); ++digits) {
    char text[32];
    const auto end =
        std::to_chars(text, text + sizeof text, exact, std::chars_format::scientific, digits - 1).ptr;
    double rounded = 0;
    std::from_chars(text, end, rounded);
    if (Float16(rounded).bits == x.bits) return rounded;
  }
  return exact;
}

double shortest(float x) {
  if (is_short_whole(x) || !std::isfinite(x)) return x;
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

std::optional<double> number_in(std::string_view text) {
  text = without_blanks(text);
  if (is_true(text) || is_false(text)) return is_true(text) ? 1 : 0;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string_view spelling_of_text(std::string_view text, std::string& room) {
  text = without_blanks(text);
  if (text.empty()) return text;
  if (const char c = text[0]; is_digit(c) || c == '-' || c == '+') {
    if (digits_at(text) == text.size()) return text;
    if (const auto found = spell_whole(text)) return *found;
    return spell_scientific(text, room).value_or(text);
  }
  return is_true(text) ? "True" : is_false(text) ? "False" : text;
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// A quotient of two numbers that a double holds exactly is rounded once; others are read from their digits.
double DecimalNumber::number() const {
  constexpr int64_t kExact = int64_t{1} << 53;
  constexpr int kMostZeros = 22;
  double result = 0;
  if (digits <= kExact && digits >= -kExact && scale <= kMostZeros) {
    double unit = 1;
    for (int i = 0; i < scale; ++i) unit *= 10;
    result = static_cast<double>(digits) / unit;
  } else {
    const std::string decimal = text();
    std::from_chars(decimal.data(), decimal.data() + decimal.size(), result);
  }
  return result;
}

std::string DecimalNumber::text() const {
  std::string result = fmt::format("{}", digits < 0 ? -digits : digits);
  const auto after = static_cast<size_t>(scale);
  if (result.size() <= after) result.insert(0, after + 1 - result.size(), '0');
  if (after > 0) result.insert(result.size() - after, 1, '.');
  return digits < 0 ? '-' + result : result;
}

std::optional<double> number_of(const Cell& cell) {
  return std::visit(
      []<class T>(const T& x) -> std::optional<double> {
        if constexpr (std::is_same_v<T, std::monostate> || std::is_same_v<T, Moment>)
          return std::nullopt;
        else if constexpr (std::is_same_v<T, std::string_view>)
          return number_in(x);
        else if constexpr (std::is_same_v<T, DecimalNumber>)
          return x.number();
        else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16>)
          return shortest(x);
        else
          return static_cast<double>(x);
      },
      cell);
}

std::string_view spelling_of(const Cell& cell, std::string& room) {
  return std::visit(
      [&]<class T>(const T& x) -> std::string_view {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return {};
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return spelling_of_text(x, room);
        } else if constexpr (std::is_same_v<T, bool>) {
          return x ? "True" : "False";
        } else if constexpr (std::is_same_v<T, Moment>) {
          return room = text_of(x);
        } else if constexpr (std::is_same_v<T, Float16>) {
          return spelling_of_float(shortest(x), room);
        } else if constexpr (std::is_floating_point_v<T>) {
          return spelling_of_float(x, room);
        } else if constexpr (std::is_same_v<T, DecimalNumber>) {
          const std::string text = x.text();
          const std::string_view spelled = spell_whole(text).value_or(text);
          return room = std::string(spelled);
        } else {
          char text[24];
          return room.assign(text, std::to_chars(text, text + sizeof text, x).ptr);
        }
      },
      cell);
}

std::string shown_text(const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return "null";
  if (const auto* text = std::get_if<std::string_view>(&cell)) return std::string(*text);
  if (const auto* decimal = std::get_if<DecimalNumber>(&cell)) return decimal->text();
  if (const auto* real = std::get_if<float>(&cell)) return fmt::format("{}", *real);
  if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{}", *real);
  std::string room;
  return std::string(spelling_of(cell, room));
}

}  // namespace trifold
