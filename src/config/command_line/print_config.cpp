#include "config/command_line/print_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/command_line/config_file.h"

namespace trifold {
namespace {

constexpr size_t kWidestAligned =
    60;  // a longer line keeps its comment to itself instead of moving all others

std::string assignment(const Option& option) {
  const auto words = value_words(option);
  if (!words) return fmt::format("# {} =", option.name);
  return fmt::format("{} = {}", option.name, join_value(*words, is_list(option)));
}

std::string origin_text(const Option& option, const std::map<std::string, std::string>& origins) {
  const auto origin = origins.find(option.name);
  if (origin != origins.end()) return origin->second;
  if (!value_words(option)) return option.when_absent.empty() ? "not set" : "not set: " + option.when_absent;
  return "default";
}

}  // namespace

std::string print_config(const CommandInfo& command, const OptionTable& table,
                         const std::map<std::string, std::string>& origins) {
  size_t width = 0;
  for (const Option& option : table.options())
    if (const size_t size = assignment(option).size(); size <= kWidestAligned) width = std::max(width, size);
  std::string text =
      fmt::format("# trifold {}: every option and where its value comes from.\n", command.name);
  std::string group;
  for (const Option& option : table.options()) {
    if (option.group != group) text += fmt::format("\n# {}\n", group = option.group);
    text += fmt::format("{:<{}}  # {}\n", assignment(option), width, origin_text(option, origins));
  }
  return text;
}

}  // namespace trifold
