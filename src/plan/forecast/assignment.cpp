#include "plan/forecast/assignment.h"

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace trifold {

std::pair<std::string, std::string> split_assignment(const char* option, const std::string& assignment) {
  const size_t sign = assignment.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == assignment.size())
    bad_input("{} '{}' is not of the form KEY=VALUE", option, assignment);
  return {assignment.substr(0, sign), assignment.substr(sign + 1)};
}

double parse_number(const std::string& key, const std::string& value) {
  double number = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (problem != std::errc() || end != value.data() + value.size() || !std::isfinite(number))
    bad_input("{} '{}' is not a number", key, value);
  return number;
}

}  // namespace trifold
