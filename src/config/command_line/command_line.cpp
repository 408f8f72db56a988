#include "config/command_line/command_line.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "config/command_line/config_file.h"
#include "config/command_line/help.h"
#include "config/fields/nearest.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {
namespace {

using Words = std::span<const std::string>;

// Whether the words after a command, or the file that they name, give this option.
bool gives(Words words, std::string_view option) {
  constexpr std::string_view kConfig = "config";
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) continue;
    const size_t equals = std::min(words[i].find('='), words[i].size());
    const std::string name = hyphenated(words[i].substr(2, equals - 2));
    if (name == option) return true;
    if (name != kConfig || (equals == words[i].size() && i + 1 == words.size())) continue;
    const std::string file = equals == words[i].size() ? words[i + 1] : words[i].substr(equals + 1);
    try {
      const std::vector<FileEntry> entries = read_config_file(file);
      if (std::any_of(entries.begin(), entries.end(),
                      [&](const FileEntry& entry) { return entry.name == option; }))
        return true;
    } catch (const Error&) {  // reported when the option's values are read
      return false;
    }
  }
  return false;
}

// `plan` of a recommender is a separate command, selected by an option.
std::string command_meant(const std::string& name, Words words) {
  for (const CommandInfo& info : commands()) {
    if (info.instead_of != name) continue;
    std::istringstream options{std::string(info.when_given)};
    for (std::string option; options >> option;)
      if (gives(words, option)) return std::string(info.name);
  }
  return name;
}

[[noreturn]] void unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandInfo& info : commands()) names.emplace_back(info.name);
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  if (name.empty() || name.front() == '-')
    bad_input("name the command before its options: trifold COMMAND {} ...; the commands are {}", name, list);
  const std::vector<std::string> close = similar(name, names);
  const std::string guess =
      close.empty() ? "" : fmt::format("the nearest known command is {}; ", alternatives(close, ""));
  bad_input("unknown command '{}': {}the commands are {}", printable(name), guess, list);
}

}  // namespace

Request parse_command_line(Words arguments, const Environment& environment, Remarks* remarks) {
  if (arguments.size() < 2) bad_input("name a command; trifold --help lists them");
  const Words rest = arguments.subspan(2);
  const std::string name = command_meant(arguments[1], rest);
  if (name == "help" && !rest.empty()) {
    const std::vector<std::string> words{arguments[0], rest[0], "--help"};
    return parse_command_line(Words(words), environment);
  }
  if (name == "--help" || name == "-h" || name == "help")
    return TextRequest{program_help(environment.terminal_width)};
  if (name == "--version") return TextRequest{version_text() + "\n"};
  for (const CommandInfo& info : commands())
    if (info.name == name) {
      Remarks unused;
      return info.read(info, rest, environment, remarks != nullptr ? *remarks : unused);
    }
  unknown_command(name);
}

Request parse_command_line(int argc, const char* const* argv, const Environment& environment,
                           Remarks* remarks) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return parse_command_line(std::span<const std::string>(arguments), environment, remarks);
}

std::string version_text() { return "trifold " TRIFOLD_VERSION; }

}  // namespace trifold
