#include "config/fields/number.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "core/error.h"

namespace trifold {
namespace {

template <class T>
T parse_whole(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  const bool negative = !text.empty() && text.front() == '-';
  if (code == std::errc::result_out_of_range && stop == end)
    bad_input("'{}' is too {}: give at {} {}", text, negative ? "small" : "large",
              negative ? "least" : "most",
              negative ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max());
  if (code == std::errc() && stop == end) return value;
  if (std::is_unsigned_v<T> && negative) bad_input("'{}' is negative: it must be 0 or more", text);
  bad_input("'{}' is not a whole number: write it in digits, like 1000", text);
}

}  // namespace

int64_t parse_int64(std::string_view text) { return parse_whole<int64_t>(text); }
int parse_int(std::string_view text) { return parse_whole<int>(text); }
uint64_t parse_uint64(std::string_view text) { return parse_whole<uint64_t>(text); }

double parse_double(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code == std::errc::result_out_of_range && stop == end)
    bad_input("'{}' is outside the range of double precision (about 1e-308 to 1e308)", text);
  if (code != std::errc() || stop != end)
    bad_input("'{}' is not a number: write it like 0.001 or 1e-3", text);
  if (!std::isfinite(value)) bad_input("'{}' is not a finite number: write it like 0.001 or 1e-3", text);
  return value;
}

std::string format_double(double value) { return fmt::format("{}", value); }

}  // namespace trifold
