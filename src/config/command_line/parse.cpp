#include "config/command_line/parse.h"

#include <algorithm>
#include <array>
#include <boost/program_options/option.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <sstream>

#include "config/command_line/command_info.h"
#include "config/command_line/config_file.h"
#include "config/command_line/synonyms.h"
#include "config/command_line/unavailable.h"
#include "config/fields/nearest.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {
namespace {

namespace po = boost::program_options;

// Values pass through Boost as plain text: set_value checks them more strictly than a lexical cast would.
const po::value_semantic* semantic(const Option& option) {
  if (is_flag(option)) return new po::untyped_value(true);  // Boost takes ownership
  if (is_list(option)) return po::value<std::vector<std::string>>()->multitoken();
  return po::value<std::string>();
}

po::options_description boost_options(const OptionTable& table) {
  po::options_description result;
  const auto add = [&](const Option& option) {
    std::string names = option.name;
    for (const std::string& alias : option.aliases) names += "," + alias;
    for (const OldSpelling& old : option.old_spellings) names += "," + old.name;
    result.add_options()(names.c_str(), semantic(option), "");
  };
  for (const Option& option : table.options()) add(option);
  for (const Option& option : common_options().options()) add(option);
  return result;
}

// "it is an option of trifold score": the other commands that have the option, if there are few; else "".
std::string commands_with(const std::string& option) {
  constexpr size_t kMost = 3;
  static const auto kCommands = [] {
    std::map<std::string, std::vector<std::string>> found;
    for (const CommandInfo& command : commands())
      if (command.with_table != nullptr)
        with_default_table(command.name, [&](const OptionTable& table) {
          for (const Option& one : table.options())
            found[one.name].push_back(fmt::format("trifold {}", command.name));
        });
    return found;
  }();
  const auto found = kCommands.find(hyphenated(option));
  if (found == kCommands.end() || found->second.size() > kMost) return "";
  return fmt::format("it is an option of {}", fmt::join(found->second, ", "));
}

// The words that Boost found, and the values of flags written as --flag=value, for which Boost allows none.
struct GivenWords {
  std::vector<po::option> options;
  std::map<std::string, std::string> flag_values;
};

// Boost calls this before it parses a word: it rewrites --some_name=value to --some-name=value and removes the value of
// a flag.
void rewrite(const OptionTable& table, std::string& word, GivenWords& result) {
  if (!word.starts_with("--")) return;
  const size_t equals = std::min(word.find('='), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), '_', '-');
  if (equals == word.size()) return;
  const std::string name = word.substr(2, equals - 2);
  const Option* option = table.find(name);
  if (option == nullptr) option = common_options().find(name);
  if (option == nullptr || !is_flag(*option)) return;
  result.flag_values[option->name] = word.substr(equals + 1);
  word.resize(equals);
}

GivenWords boost_parse(const OptionTable& table, std::span<const std::string> arguments) {
  using namespace po::command_line_style;
  GivenWords result;
  const po::options_description description = boost_options(table);
  const auto rewrite_next = [&](std::vector<std::string>& words) {
    rewrite(table, words.front(), result);
    return std::vector<po::option>();
  };
  try {
    result.options = po::command_line_parser(std::vector<std::string>(arguments.begin(), arguments.end()))
                         .options(description)
                         .style(allow_long | long_allow_adjacent | long_allow_next)
                         .extra_style_parser(rewrite_next)
                         .allow_unregistered()
                         .run()
                         .options;
    return result;
  } catch (const po::invalid_command_line_syntax& error) {
    const std::string name = hyphenated(error.get_option_name());
    using Syntax = po::invalid_syntax;
    if (error.kind() == Syntax::missing_parameter) bad_input("{} needs a value", name);
    if (error.kind() == Syntax::empty_adjacent_parameter) bad_input("{} has no value after the '='", name);
    bad_input("{}: {}", name, error.what());
  } catch (const po::error& error) {
    bad_input("the command line cannot be read: {}", error.what());
  }
}

std::vector<std::string> given_words(const GivenWords& words, const po::option& word, const Option& option) {
  if (!is_flag(option)) return word.value;
  const auto value = words.flag_values.find(option.name);
  return {value == words.flag_values.end() ? "true" : value->second};
}

// Whether version `left`, as "0.2.0", is older than `right`.
bool is_older(std::string_view left, std::string_view right) {
  const auto numbers = [](std::string_view version) {
    std::array<int, 3> parts{};
    std::istringstream text{std::string(version)};
    for (int& part : parts) {
      text >> part;
      text.ignore(1, '.');
    }
    return parts;
  };
  return numbers(left) < numbers(right);
}

// The name that a word of the command line gives: old-name of --old-name=5.
std::string name_given(const po::option& word) {
  const std::string token = word.original_tokens.empty() ? "" : word.original_tokens.front();
  return token.starts_with("--") ? hyphenated(token.substr(2, token.find('=') - 2)) : "";
}

class Reader {
 public:
  Reader(const OptionTable& table, Parsed& parsed) : table_(table), parsed_(parsed) {}

  void read_file(const std::string& file) {
    std::map<std::string, int> first_line;
    for (const FileEntry& entry : entries_of(file)) {
      const std::string place = fmt::format("{}:{}", file, entry.line);
      const Option* option = table_.find(entry.name);
      if (option == nullptr) {
        if (!(entry.value == "true" && is_always_done(entry.name, place + ": ")))
          unknown(entry.name, place + ": ", "");
        continue;
      }
      if (is_rejected(*option, hyphenated(entry.name), place + ": ")) continue;
      const auto [before, is_new] = first_line.emplace(option->name, entry.line);
      if (is_new)
        assign(*option, place, [&] { return split_value(entry.value, is_list(*option)); });
      else
        problem(option->name,
                fmt::format("{}: {} is already given in line {}", place, option->name, before->second));
    }
  }

  void read_words(const GivenWords& words) {
    std::set<std::string> seen;
    bool after_unknown = false;  // words after an unknown option are probably its values
    for (const po::option& word : words.options) {
      if (word.string_key.empty()) {
        if (!after_unknown) positional(word);
        continue;
      }
      const Option* option = table_.find(word.string_key);
      const bool is_set = word.value.empty() || word.value.front() == "true";
      if (word.unregistered && is_set && is_always_done(hyphenated(word.string_key), "")) {
        after_unknown = false;
        continue;
      }
      const Option* swallowed = option_taken_as_value(word);
      after_unknown = word.unregistered || swallowed != nullptr;
      if (swallowed != nullptr)
        missing_value(word, *swallowed);
      else if (word.unregistered)
        unknown(hyphenated(word.string_key), "", "--");
      else if (!seen.insert(word.string_key).second)
        problem(word.string_key,
                fmt::format("--{} is given twice: give it once{}", word.string_key,
                            option && is_list(*option) ? ", with all its values after it" : ""));
      else if (option != nullptr && !is_rejected(*option, name_given(word), ""))
        assign(*option, "command line", [&] { return given_words(words, word, *option); });
    }
  }

 private:
  std::vector<FileEntry> entries_of(const std::string& file) {
    try {
      return read_config_file(file);
    } catch (const Error& error) {
      parsed_.problems.emplace_back(error.what());
      parsed_.file_is_unread = true;
      return {};
    }
  }

  // --lr --min-lr 0: Boost takes "--min-lr" as the value of --lr. Returns the option --min-lr in such a case.
  const Option* option_taken_as_value(const po::option& word) const {
    const bool adjacent = word.original_tokens.size() < 2;  // --lr=--min-lr is intended
    if (word.unregistered || adjacent || word.value.empty() || !word.value[0].starts_with("--"))
      return nullptr;
    const std::string name = word.value[0].substr(2, word.value[0].find('=') - 2);
    const Option* option = table_.find(name);
    return option != nullptr ? option : common_options().find(name);
  }

  void missing_value(const po::option& word, const Option& next) {
    parsed_.doubtful.insert(next.name);
    problem(word.string_key, fmt::format("--{0} needs a value, but --{1} follows (if that is the value, "
                                         "write --{0}=--{1})",
                                         word.string_key, next.name));
  }

  void problem(const std::string& option, std::string text) {
    parsed_.doubtful.insert(option);
    parsed_.problems.push_back(std::move(text));
  }

  // Whether `name` is an old spelling that this version rejects: a problem. One that still works is noted.
  bool is_rejected(const Option& option, const std::string& name, const std::string& place) {
    const OldSpelling* old = old_spelling(option, name);
    if (old == nullptr) return false;
    if (!is_older(TRIFOLD_VERSION, old->rejected_from)) {
      problem(option.name, fmt::format("{}--{} was renamed: give --{}", place, name, option.name));
      return true;
    }
    parsed_.notes.push_back(fmt::format("{}--{} was renamed: give --{}; version {} rejects the old name",
                                        place, name, option.name, old->rejected_from));
    return false;
  }

  template <class Texts>
  void assign(const Option& option, const std::string& place, Texts words) {
    const bool in_file = place != "command line";
    try {
      set_value(option, words());
      std::string& origin = parsed_.origins[option.name];
      origin = origin.empty() ? place : fmt::format("{}, instead of {}", place, origin);
    } catch (const Error& error) {
      problem(option.name, in_file ? fmt::format("{}: {}", place, error.what()) : error.what());
    }
  }

  // Adds a note about a flag that requests what is always done, in a command that trains or plans.
  bool is_always_done(const std::string& name, const std::string& place) {
    if (table_.find("micro-batch-size") == nullptr) return false;
    const std::optional<std::string> sentence = always_done(name);
    if (!sentence) return false;
    const std::string note = place + *sentence;
    if (std::find(parsed_.notes.begin(), parsed_.notes.end(), note) == parsed_.notes.end())
      parsed_.notes.push_back(note);
    return true;
  }

  // `dashes` precedes an option's name where the unknown one was found.
  void unknown(const std::string& name, const std::string& place, std::string_view dashes) {
    if (const Option* common = common_options().find(name)) {
      parsed_.problems.push_back(fmt::format("{}--{} works on the command line only", place, common->name));
      return;
    }
    std::vector<std::string> names;
    for (const Option& option : table_.options()) {
      names.push_back(option.name);
      names.insert(names.end(), option.aliases.begin(), option.aliases.end());
    }
    if (const auto sentence = unavailable(name)) {
      parsed_.problems.push_back(place + *sentence);
      return;
    }
    if (const auto sentence = always_done(name)) {
      parsed_.problems.push_back(fmt::format("{}{}: leave it out", place, *sentence));
      return;
    }
    if (const Synonym* synonym = synonym_of(name)) {
      parsed_.problems.push_back(
          fmt::format("{}unknown option {}{}: {}", place, dashes, name, advice_of(*synonym)));
      return;
    }
    const std::vector<std::string> close = similar(name, names);
    for (const std::string& like : close)
      if (const Option* meant = table_.find(like)) parsed_.doubtful.insert(meant->name);
    std::vector<std::string> advice;
    if (const std::string others = commands_with(name); !others.empty()) advice.push_back(others);
    if (!close.empty()) advice.push_back("the nearest known option is " + alternatives(close, dashes));
    if (advice.empty()) advice.emplace_back("--help lists all options");
    parsed_.problems.push_back(
        fmt::format("{}unknown option {}{}: {}", place, dashes, printable(name), fmt::join(advice, "; ")));
  }

  std::string advice_of(const Synonym& synonym) {
    if (synonym.ours.empty()) return std::string(synonym.note);
    const Option* option = table_.find(std::string(synonym.ours));
    if (option != nullptr) parsed_.doubtful.insert(option->name);
    return fmt::format("Trifold's name for it is --{}{}{}{}", synonym.ours, synonym.note.empty() ? "" : "; ",
                       synonym.note, option == nullptr ? ", which this command does not have" : "");
  }

  void positional(const po::option& word) {
    for (const std::string& value : word.value) {
      if (value == "-h")
        parsed_.help = true;
      else
        parsed_.positional.push_back(value);
    }
  }

  const OptionTable& table_;
  Parsed& parsed_;
};

// The common options bound to `values`.
struct CommonValues {
  std::optional<std::string> config;
  bool overwrite = false;
  bool print_config = false;
  bool help = false;
};

OptionTable bind_common(CommonValues& values) {
  OptionTable table;
  table.group("General");
  table.add("config", &values.config, "Also read options from this file; the command line takes precedence.")
      .reads("FILE")
      .absent("none");
  table.add("overwrite", &values.overwrite,
            "Let outputs replace files that this command did not write; files that it reads, checkpoints and "
            "data sets are never replaced.");
  table.add("print-config", &values.print_config, "Print every value and its origin, then exit.");
  table.add("help", &values.help, "Print this help and exit (also -h).");
  return table;
}

// Moves --config, --print-config and --help out of the words that Boost found.
void read_common(const GivenWords& words, CommonValues& values, Parsed& parsed) {
  const OptionTable table = bind_common(values);
  std::set<std::string> seen;
  for (const po::option& word : words.options) {
    const Option* option =
        word.unregistered || word.string_key.empty() ? nullptr : table.find(word.string_key);
    if (option == nullptr || !seen.insert(option->name).second) continue;  // Reader reports a repetition
    try {
      set_value(*option, given_words(words, word, *option));
    } catch (const Error& error) {
      parsed.problems.emplace_back(error.what());
    }
  }
}

}  // namespace

const OptionTable& common_options() {
  static CommonValues values;
  static const OptionTable kTable = bind_common(values);
  return kTable;
}

Parsed parse_options(const OptionTable& table, std::span<const std::string> arguments) {
  Parsed parsed;
  parsed.help = std::find(arguments.begin(), arguments.end(), "--help") != arguments.end();
  if (parsed.help) return parsed;
  const GivenWords words = boost_parse(table, arguments);
  CommonValues common;
  read_common(words, common, parsed);
  parsed.config = common.config;
  parsed.overwrite = common.overwrite;
  parsed.print_config = common.print_config;
  Reader reader(table, parsed);
  if (common.config) reader.read_file(*common.config);
  reader.read_words(words);
  return parsed;
}

}  // namespace trifold
