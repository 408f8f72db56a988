#include "core/bytes_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace trifold {

std::string bytes_text(size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // A value that rounds to 1024.00 of a unit is shown as 1.00 of the next.
  const auto shown = [&] { return std::round(value * 100) / 100; };
  for (; shown() >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, kUnits[unit]);
}

std::string count_text(double value) {
  const char* const units[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  for (; value >= 1000 && unit < 6; ++unit) value /= 1000;
  return fmt::format("{:.{}f}{}", value, unit == 0 ? 0 : value < 10 ? 2 : 1, units[unit]);
}

std::string rate_text(double per_second) {
  return fmt::format("{:.{}f}", per_second, per_second < 10 ? 2 : per_second < 100 ? 1 : 0);
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", 1e3 * seconds);
  return fmt::format("{:.3f} us", 1e6 * seconds);
}

}  // namespace trifold
