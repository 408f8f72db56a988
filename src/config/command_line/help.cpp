#include "config/command_line/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "config/command_line/parse.h"

namespace trifold {
namespace {

// A required option has no default, even if its field holds a numeric 0 or an empty text.
bool has_default(const Option& option) {
  return value_words(option) && !is_flag(option) && !(option.required && range_problem(option));
}

// As it may be given; choices are separated by commas.
std::string default_text(const Option& option) {
  const auto words = *value_words(option);
  const std::string text = fmt::format("{}", fmt::join(words, option.allowed.empty() ? " " : ","));
  return text.empty() ? "empty" : text;
}

// The place at which a line of at most `width` characters of `text` ends: a blank, or in a longer word behind a '|' or
// '-'. A name of an option keeps its own two hyphens.
size_t line_end(std::string_view text, size_t width) {
  if (text.size() <= width) return text.size();
  const size_t blank = text.rfind(' ', width);
  if (blank != std::string_view::npos && blank > 0) return blank;
  const size_t mark = text.find_last_of("|-", width - 1);
  if (mark != std::string_view::npos && mark > 2) return mark + 1;
  return std::min(text.find(' '), text.size());
}

// As above, but so that the last word of a text does not stand on a line alone.
size_t line_end_before_two_words(std::string_view text, size_t width) {
  const size_t end = line_end(text, width);
  const bool leaves_a_word =
      end + 1 < text.size() && text[end] == ' ' && text.find(' ', end + 1) == std::string_view::npos;
  const size_t before = leaves_a_word ? text.rfind(' ', end - 1) : std::string_view::npos;
  return before == std::string_view::npos || before == 0 || text.size() - before - 1 > width ? end : before;
}

std::vector<std::string_view> lines_of(std::string_view text, size_t width) {
  std::vector<std::string_view> lines;
  while (true) {
    const size_t end = line_end_before_two_words(text, width);
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
    if (text.empty()) return lines;
  }
}

// A head, with the text next to it if there is room and below it otherwise.
std::string entry(std::string_view head, std::string_view text, size_t column, size_t width) {
  constexpr size_t kIndent = 2;
  std::string result;
  for (const std::string_view line : lines_of(head, width - 2 * kIndent))
    result += fmt::format("{:{}}{}\n", "", result.empty() ? kIndent : 2 * kIndent, line);
  if (result.size() < column) {  // the end of the line is one character
    result.pop_back();
    result.resize(column, ' ');
  } else {
    result.append(column, ' ');
  }
  const std::string next = '\n' + std::string(column, ' ');
  return result + fmt::format("{}\n", fmt::join(lines_of(text, width - column), next));
}

// Options under the headings of their groups.
std::string options_text(const OptionTable& table, size_t width) {
  const size_t column = std::clamp<size_t>(width / 3, 24, 40);
  std::string text, title;
  for (const Option& option : table.options()) {
    if (option.group != title) text += fmt::format("\n{}:\n", title = option.group);
    const std::string head =
        fmt::format("--{}{}{}", option.name, is_flag(option) ? "" : " ", option.argument);
    text += entry(head, option_description(option), column, width);
  }
  return text;
}

size_t columns(int width) { return static_cast<size_t>(std::clamp(width, 60, 160)); }

}  // namespace

std::string option_description(const Option& option) {
  std::vector<std::string> facts;
  if (std::string bounds = described_bounds(option); !bounds.empty()) facts.push_back(std::move(bounds));
  if (!option.when_absent.empty())
    facts.push_back("default: " + option.when_absent);
  else if (has_default(option))
    facts.push_back("default " + default_text(option));
  else if (option.required)
    facts.push_back(option.instead.empty() ? "required" : "required, or --" + option.instead);
  std::string text = option.help;
  if (!facts.empty()) text += fmt::format(" ({})", fmt::join(facts, "; "));
  for (const std::string& alias : option.aliases) text += fmt::format(" Also --{}.", alias);
  return text;
}

std::string usage_line(const CommandInfo& command) {
  return fmt::format("usage: trifold {}{}{}", command.name, command.usage.empty() ? "" : " ", command.usage);
}

std::string help_text(const CommandInfo& command, const OptionTable& table, int width) {
  std::string text = fmt::format("{}\n\n{}\n\nexamples:\n", usage_line(command),
                                 fmt::join(lines_of(command.summary, columns(width)), "\n"));
  for (const std::string_view example : command.examples) text += fmt::format("  {}\n", example);
  return text + options_text(table, columns(width)) + options_text(common_options(), columns(width));
}

std::string program_help(int width) {
  std::string text =
      "usage: trifold COMMAND [options]\n\n"
      "Trains transformers and recommenders on a mesh of ranks.\n\ncommands:\n";
  size_t longest = 0;
  for (const CommandInfo& command : commands()) longest = std::max(longest, command.name.size());
  for (const CommandInfo& command : commands())
    text += entry(command.name, command.summary, longest + 4, columns(width));
  return text +
         "\ntrifold COMMAND --help explains the options of a command;\n"
         "trifold --version prints the version.\n";
}

}  // namespace trifold
