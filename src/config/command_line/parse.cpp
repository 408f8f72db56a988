#include "config/command_line/parse.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "config/command_line/boost_words.h"
#include "config/command_line/command_info.h"
#include "config/command_line/config_file.h"
#include "config/fields/nearest.h"
#include "config/foreign/other_defaults.h"
#include "config/foreign/translate.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {
namespace {

namespace po = boost::program_options;

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
    for (const PlacedOption& entry : own_entries(file)) {
      const Option* option = table_.find(entry.option.name);
      if (option == nullptr) {
        unknown(entry.option.name, entry.place + ": ", "");
        continue;
      }
      if (is_rejected(*option, entry.option.name, entry.place + ": ")) continue;
      const auto [before, is_new] = first_line.emplace(option->name, entry.line);
      if (is_new)
        assign(*option, entry.place, [&] { return split_value(entry.text, is_list(*option)); });
      else
        problem(option->name,
                fmt::format("{}: {} is already given in line {}", entry.place, option->name, before->second));
    }
  }

  // Takes over what the translation of foreign options found.
  void take_remarks(const Translator& translator) {
    parsed_.notes.insert(parsed_.notes.end(), translator.notes().begin(), translator.notes().end());
    parsed_.problems.insert(parsed_.problems.end(), translator.problems().begin(),
                            translator.problems().end());
    if (!translator.program().empty()) program_ = translator.program();
    parsed_.doubtful.insert(translator.doubtful().begin(), translator.doubtful().end());
  }

  // `spellings`: Translator::spellings of the words.
  void read_words(const GivenWords& words, const std::map<std::string, std::string>& spellings) {
    spellings_ = spellings;
    std::map<std::string, std::vector<std::string>> seen;
    bool after_unknown = false;  // words after an unknown option are probably its values
    for (const po::option& word : words.options) {
      if (word.string_key.empty()) {
        if (!after_unknown) positional(word);
        continue;
      }
      const Option* option = table_.find(word.string_key);
      const Option* swallowed = option_taken_as_value(word);
      after_unknown = word.unregistered || swallowed != nullptr;
      if (swallowed != nullptr) {
        missing_value(word, *swallowed);
        continue;
      }
      if (word.unregistered) {
        unknown(hyphenated(word.string_key), "", "--");
        continue;
      }
      std::vector<std::string> values = option == nullptr ? word.value : given_words(words, word, *option);
      const auto [first, is_new] = seen.emplace(word.string_key, values);
      if (!is_new)
        repeated(word.string_key, option,
                 values == first->second && words.flag_values.count(word.string_key) == 0);
      else if (option != nullptr && !is_rejected(*option, name_given(word), ""))
        assign(*option, std::string(kCommandLine), [&] { return values; });
    }
  }

  // Notes what options of another program leave at defaults that are other ones here.
  void note_other_defaults() {
    if (auto note = note_of_other_defaults(program_, table_, parsed_.origins))
      parsed_.notes.push_back(std::move(*note));
  }

 private:
  // An entry of a file after translation; `text` is its value as a file has it.
  struct PlacedOption {
    GivenOption option;
    std::string text, place;
    int line;
  };

  // The entries of a file, with own options in place of foreign ones.
  std::vector<PlacedOption> own_entries(const std::string& file) {
    Translator translator(table_, common_options());
    std::vector<PlacedOption> given, own;
    for (const FileEntry& entry : entries_of(file)) {
      const std::string place = fmt::format("{}:{}", file, entry.line);
      GivenOption option{hyphenated(entry.name), words_of(entry, translator.takes_several(entry.name))};
      translator.add_given(option);
      given.push_back({std::move(option), entry.value, place, entry.line});
    }
    for (PlacedOption& entry : given) {
      const auto replacements = translator.take(entry.option, entry.place + ": ");
      if (!replacements) {
        own.push_back(std::move(entry));
        continue;
      }
      for (const GivenOption& option : *replacements)
        own.push_back({option, join_value(option.values, translator.takes_several(option.name)), entry.place,
                       entry.line});
    }
    take_remarks(translator);
    file_spellings_ = translator.spellings();
    return own;
  }

  // The words of an entry; a malformed value is reported when the option takes it.
  static std::vector<std::string> words_of(const FileEntry& entry, bool list) {
    try {
      return split_value(entry.value, list);
    } catch (const Error&) {
      return {entry.value};
    }
  }

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

  // An option that is given twice is noted if both have the same values, as in published lines; else it is a problem.
  void repeated(const std::string& name, const Option* option, bool same_value) {
    if (same_value && option != nullptr)
      parsed_.notes.push_back(fmt::format("--{} is given twice, with the same value", name));
    else
      problem(name,
              fmt::format("--{} is given twice: give it once{}", name,
                          option != nullptr && is_list(*option) ? ", with all its values after it" : ""));
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

  // `place` is kCommandLine, or the file and line.
  template <class Texts>
  void assign(const Option& option, const std::string& place, Texts words) {
    const bool in_file = place != kCommandLine;
    const std::map<std::string, std::string>& spellings = in_file ? file_spellings_ : spellings_;
    const auto spelling = spellings.find(option.name);
    const std::string source =
        spelling == spellings.end() ? place : fmt::format("{}, as {}", place, spelling->second);
    if (spelling != spellings.end())
      parsed_.given_as[option.name] = spelling->second;
    else
      parsed_.given_as.erase(option.name);  // a file's other spelling no longer counts
    try {
      set_value(option, words());
      std::string& origin = parsed_.origins[option.name];
      origin = origin.empty() ? source : fmt::format("{}, instead of {}", source, origin);
    } catch (const Error& error) {
      problem(option.name, in_file ? fmt::format("{}: {}", place, error.what()) : error.what());
    }
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
    if (const ForeignOption* foreign = foreign_option(name)) {
      parsed_.problems.push_back(
          fmt::format("{}unknown option {}{}: {}", place, dashes, name, advice_of(*foreign)));
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

  // The name here of an option that the table of foreign options leaves to the reader.
  std::string advice_of(const ForeignOption& foreign) {
    const ForeignFate& fate = foreign.otherwise;
    if (fate.kind == ForeignFate::Kind::Ours)
      return fmt::format("Trifold's name for it is {}, which this command does not have", fate.text);
    if (fate.ours.empty()) return fate.text;
    const Option* option = table_.find(fate.ours);
    if (option != nullptr) parsed_.doubtful.insert(option->name);
    return fmt::format("Trifold's name for it is --{}{}{}{}", fate.ours, fate.text.empty() ? "" : "; ",
                       fate.text, option == nullptr ? ", which this command does not have" : "");
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
  std::map<std::string, std::string> spellings_, file_spellings_;  // Translator::spellings
  std::string program_;                                            // Translator::program
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
  Translator translator(table, common_options());
  const GivenWords words = boost_parse(table, translator.translate(arguments));
  CommonValues common;
  read_common(words, common, parsed);
  parsed.config = common.config;
  parsed.overwrite = common.overwrite;
  parsed.print_config = common.print_config;
  Reader reader(table, parsed);
  if (common.config) reader.read_file(*common.config);
  reader.take_remarks(translator);
  reader.read_words(words, translator.spellings());
  reader.note_other_defaults();
  return parsed;
}

}  // namespace trifold
