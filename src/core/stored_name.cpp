#include "core/stored_name.h"

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace {

constexpr size_t kMostBytes = 255;

bool is_allowed(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-' || c == '/';
}

}  // namespace

bool is_storable_name(std::string_view name) {
  if (!std::all_of(name.begin(), name.end(), is_allowed)) return false;
  while (true) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    if (part.size() == name.size()) return true;
    name.remove_prefix(part.size() + 1);
  }
}

void check_storable_part(std::string_view what, std::string_view name) {
  if (is_storable_name(name) && name.find('/') == std::string_view::npos && name.size() <= kMostBytes) return;
  bad_input(
      "'{}' is not a valid name for a {}: names in checkpoints consist of up to {} "
      "letters (a-z, A-Z), digits, '.', '_' and '-'",
      printable(name), what, kMostBytes);
}

}  // namespace trifold
