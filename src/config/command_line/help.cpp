#include "config/command_line/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "config/command_line/parse.h"

namespace trifold {
namespace {

// A required option has no default, even if its field holds a numeric 0 or an empty text.
bool has_default(const Option& option) {
  return value_words(option) && !is_flag(option) && !(option.required && range_problem(option));
}

// The default as the user would write it; choices are separated by commas.
std::string default_text(const Option& option) {
  const auto words = *value_words(option);
  const std::string text = fmt::format("{}", fmt::join(words, option.allowed.empty() ? " " : ","));
  return text.empty() ? "empty" : text;
}

// The position at which a line of at most `width` characters of `text` ends: a blank, or in a longer word after a '|'
// or '-'. The two hyphens of an option's name are not separated.
size_t line_end(std::string_view text, size_t width) {
  if (text.size() <= width) return text.size();
  const size_t blank = text.rfind(' ', width);
  if (blank != std::string_view::npos && blank > 0) return blank;
  const size_t mark = text.find_last_of("|-", width - 1);
  if (mark != std::string_view::npos && mark > 2) return mark + 1;
  return std::min(text.find(' '), text.size());
}

// As line_end, but leaves at least two words for the last line.
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

// A head with its text, next to it if there is room, otherwise below.
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

// The options that `shows` selects, under the headings of their groups.
std::string options_text(const OptionTable& table, size_t width, FunctionRef<bool(const Option&)> shows) {
  const size_t column = std::clamp<size_t>(width / 3, 24, 40);
  std::string text, title;
  for (const Option& option : table.options()) {
    if (!shows(option)) continue;
    if (option.group != title) text += fmt::format("\n{}:\n", title = option.group);
    const std::string head =
        fmt::format("--{}{}{}", option.name, is_flag(option) ? "" : " ", option.argument);
    text += entry(head, option_description(option), column, width);
  }
  return text;
}

std::string options_text(const OptionTable& table, size_t width) {
  return options_text(table, width, [](const Option&) { return true; });
}

// The commands that `command` means with other options.
std::vector<const CommandInfo*> stand_ins(const CommandInfo& command) {
  std::vector<const CommandInfo*> found;
  for (const CommandInfo& info : commands())
    if (info.instead_of == command.name) found.push_back(&info);
  return found;
}

// The options of `table` that each of these commands describes in the same words.
std::set<std::string> options_of_all(const OptionTable& table,
                                     const std::vector<const CommandInfo*>& others) {
  std::set<std::string> names;
  for (const Option& option : table.options()) names.insert(option.name);
  for (const CommandInfo* other : others)
    other->with_table([&](const OptionTable& other_table) {
      for (const Option& option : table.options()) {
        const Option* same = other_table.find(option.name);
        if (same == nullptr || same->argument != option.argument ||
            option_description(*same) != option_description(option))
          names.erase(option.name);
      }
    });
  return names;
}

// "--table-rows or --train-data", joined by `word`.
std::string options_that_select(const CommandInfo& info, std::string_view word) {
  std::string text = "--";
  for (const char c : info.when_given) text += c == ' ' ? fmt::format(" {} --", word) : std::string(1, c);
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

namespace {

std::string title(const std::string& words, size_t width) {
  constexpr size_t kMarks = 6;
  return fmt::format("\n== {} ==\n", fmt::join(lines_of(words, width - kMarks), "\n   "));
}

// The options of a command and of the commands that its name selects with other options.
std::string options_of_kinds(const OptionTable& table, const std::vector<const CommandInfo*>& others,
                             size_t width) {
  const std::set<std::string> shared = options_of_all(table, others);
  const auto is_shared = [&](const Option& option) { return shared.count(option.name) > 0; };
  const auto is_own = [&](const Option& option) { return !is_shared(option); };
  std::string without;
  for (const CommandInfo* other : others)
    without += (without.empty() ? "" : " and ") + options_that_select(*other, "and");
  std::string text = title("For all", width) + options_text(table, width, is_shared) +
                     options_text(common_options(), width) + title("Without " + without, width) +
                     options_text(table, width, is_own);
  for (const CommandInfo* other : others)
    other->with_table([&](const OptionTable& other_table) {
      text += title(fmt::format("With {}: {}", options_that_select(*other, "or"), other->name), width) +
              options_text(other_table, width, is_own);
    });
  return text;
}

}  // namespace

std::string help_text(const CommandInfo& command, const OptionTable& table, int width) {
  const std::vector<const CommandInfo*> others = stand_ins(command);
  const size_t room = columns(width);
  std::string usage = usage_line(command);
  std::string summary = fmt::format("{}\n", fmt::join(lines_of(command.summary, room), "\n"));
  std::string examples;
  for (const std::string_view example : command.examples) examples += fmt::format("  {}\n", example);
  for (const CommandInfo* other : others) {
    usage += fmt::format("\n       trifold {} {}", command.name, other->usage);
    const std::string with = fmt::format("with {}: {}", options_that_select(*other, "or"), other->summary);
    summary += fmt::format("{}\n", fmt::join(lines_of(with, room), "\n"));
    for (const std::string_view example : other->examples) examples += fmt::format("  {}\n", example);
  }
  return fmt::format("{}\n\n{}\nexamples:\n{}", usage, summary, examples) +
         (others.empty() ? options_text(table, room) + options_text(common_options(), room)
                         : options_of_kinds(table, others, room));
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
