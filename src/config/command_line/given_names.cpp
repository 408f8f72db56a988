#include "config/command_line/given_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace trifold {
namespace {

// Whether the text has the option as a whole word.
bool names_option(std::string_view text, const std::string& option) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  for (size_t at = text.find(option); at != std::string_view::npos; at = text.find(option, at + 1)) {
    const size_t end = at + option.size();
    if (end == text.size() || kOfNames.find(text[end]) == std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string with_given_names(std::string message, const std::map<std::string, std::string>& given_as) {
  std::vector<std::string> remarks;
  for (const auto& [name, spelling] : given_as)
    if (names_option(message, "--" + name) && !names_option(message, spelling))
      remarks.push_back(fmt::format("--{} was given as {}", name, spelling));
  if (remarks.empty()) return message;
  return fmt::format("{} ({})", message, fmt::join(remarks, ", "));
}

}  // namespace trifold
