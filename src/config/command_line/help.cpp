#include "config/command_line/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <list>
#include <sstream>

#include "config/command_line/parse.h"

namespace trifold {
namespace {

namespace po = boost::program_options;

// A required option has no default, even if its field holds a numeric 0 or an empty text.
bool has_default(const Option& option) {
  return value_words(option) && !is_flag(option) && !(option.required && range_problem(option));
}

const po::value_semantic* shown_semantic(const Option& option) {
  if (is_flag(option)) return new po::untyped_value(true);  // Boost takes ownership
  return po::value<std::string>()->value_name(option.argument);
}

// One Boost description per group, in order; a list because the description of the whole refers to them.
std::list<po::options_description> groups_of(const OptionTable& table, unsigned width) {
  std::list<po::options_description> groups;
  std::string title;
  for (const Option& option : table.options()) {
    if (groups.empty() || option.group != title) groups.emplace_back(title = option.group, width, width / 2);
    groups.back().add_options()(option.name.c_str(), shown_semantic(option),
                                option_description(option).c_str());
  }
  return groups;
}

// Boost leaves blanks at the ends of wrapped lines.
std::string without_trailing_blanks(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') result.erase(result.find_last_not_of(' ') + 1);
    result += c;
  }
  return result;
}

}  // namespace

std::string option_description(const Option& option) {
  std::string text = option.help;
  const std::string value = value_text(option);
  if (has_default(option))
    text += fmt::format(" (default {})", value.empty() ? "empty" : value);
  else if (option.required)
    text += option.instead.empty() ? " (required)" : fmt::format(" (required, or --{})", option.instead);
  else if (!option.when_absent.empty())
    text += fmt::format(" (default: {})", option.when_absent);
  for (const std::string& alias : option.aliases) text += fmt::format(" Also --{}.", alias);
  return text;
}

std::string help_text(const CommandInfo& command, const OptionTable& table, int width) {
  const auto columns = static_cast<unsigned>(std::clamp(width, 60, 160));
  std::ostringstream text;
  text << "usage: trifold " << command.name << ' ' << command.usage << "\n\n"
       << command.summary << "\n\nexamples:\n";
  for (const std::string_view example : command.examples) text << "  " << example << '\n';
  for (const OptionTable* part : {&table, &common_options()})
    for (const po::options_description& group : groups_of(*part, columns)) text << '\n' << group;
  return without_trailing_blanks(text.str());
}

std::string program_help() {
  std::string text =
      "usage: trifold COMMAND [options]\n\n"
      "Trains transformers and recommenders on a mesh of ranks.\n\ncommands:\n";
  size_t width = 0;
  for (const CommandInfo& command : commands()) width = std::max(width, command.name.size());
  for (const CommandInfo& command : commands())
    text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  return text +
         "\ntrifold COMMAND --help explains the options of a command; "
         "trifold --version prints the version.\n";
}

}  // namespace trifold
