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

}  // namespace trifold
