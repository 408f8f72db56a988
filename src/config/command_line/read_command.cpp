#include "config/command_line/read_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/commands/option_tables.h"
#include "config/options/check_rules.h"

namespace trifold {

namespace {

// Options by which the user chooses the tokenizer, or data without one.
constexpr std::array<const char*, 4> kTokenizerOptions{"tokenizer-type", "tokenizer-model",
                                                       "tokenizer-merges", "mock-data"};

}  // namespace

std::vector<std::string> all_problems(const Parsed& parsed, const std::vector<Problem>& whole) {
  std::vector<std::string> list = parsed.problems;
  for (Problem problem : whole) {
    const std::vector<std::string>& options = problem.options;
    const auto is_doubtful = [&](const std::string& option) { return parsed.doubtful.count(option) > 0; };
    if (std::any_of(options.begin(), options.end(), is_doubtful)) continue;
    const auto is_given = [&](const std::string& option) { return parsed.origins.count(option) > 0; };
    if (parsed.file_is_unread && !options.empty() && std::none_of(options.begin(), options.end(), is_given))
      continue;
    // A 0 is a missing value if the option is not given, and a wrong value if it is.
    if (problem.missing && is_given(options.front())) {
      problem.wrong = fmt::format("--{} 0 is not possible", options.front());
      problem.right = "it must be " + problem.right;
    }
    list.push_back(text_of(problem));
  }
  return list;
}

namespace {

// `word` as a shell reads it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,+@%-";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void add_words(const Option& option, std::vector<std::string>& words) {
  const std::vector<std::string> values = value_words(option).value_or(std::vector<std::string>());
  if (is_flag(option)) {
    words.push_back("--" + option.name + (value_text(option) == "true" ? "" : "=" + value_text(option)));
    return;
  }
  words.push_back("--" + option.name);
  for (const std::string& value : values) words.push_back(shell_word(value));
}

}  // namespace

std::vector<std::string> words_for(std::string_view command, const OptionTable& table, const Parsed& parsed) {
  const std::string place = parsed.config.value_or("") + ":";
  const auto in_file = [&](const std::string& origin) { return parsed.config && origin.starts_with(place); };
  std::vector<std::string> words;
  with_default_table(command, [&](const OptionTable& other) {
    const auto takes = [&](const std::string& name) {
      const Option* theirs = other.find(name);
      return theirs != nullptr && !is_output(theirs->use);
    };
    const bool by_file = std::all_of(parsed.origins.begin(), parsed.origins.end(), [&](const auto& given) {
      return takes(given.first) || !in_file(given.second);
    });
    if (parsed.config && by_file) words = {"--config", shell_word(*parsed.config)};
    for (const auto& [name, origin] : parsed.origins) {
      const Option* option = table.find(name);
      const bool written = origin.starts_with(kCommandLine) || (!by_file && in_file(origin));
      if (option != nullptr && written && takes(name)) add_words(*option, words);
    }
  });
  return words;
}

void add_unused_by_optimizer(const OptionTable& table, Parsed& parsed) {
  // Rules about the optimizer ask for its value, not whether it is the default.
  const auto is_sound = [](std::string_view) { return true; };
  const auto is_about_optimizer = [](const Option&, const Rule& rule) {
    return rule.kind == Rule::Kind::OnlyWith &&
           is_about(rule, [](std::string_view option) { return option == "optimizer"; });
  };
  for (const auto& [name, origin] : parsed.origins) {
    const Option* option = table.find(name);
    if (option == nullptr || !origin.starts_with(kCommandLine)) continue;
    for (const Problem& problem : broken_rules(*option, {table, table, is_sound, is_about_optimizer}, true)) {
      parsed.problems.push_back(text_of(problem));
      parsed.doubtful.insert(name);
    }
  }
}

namespace {

// Gives `option` of the command the value of `theirs`, unless the user gave it.
void take_value(const OptionTable& table, const Option& theirs, const std::string& origin, Parsed& parsed) {
  const Option* const own = table.find(theirs.name);
  if (own == nullptr || parsed.origins.contains(own->name) || parsed.doubtful.contains(own->name)) return;
  const auto words = value_words(theirs);
  if (!words) return;
  set_value(*own, *words);
  parsed.origins[own->name] = origin;
}

}  // namespace

void take_folder_model(const OptionTable& table, const Environment& environment, Parsed& parsed) {
  const Option* const load = table.find("load");
  const bool describes_model = table.find("num-layers") != nullptr;
  if (!environment.model_of_folder || load == nullptr || !describes_model || !parsed.origins.contains("load"))
    return;
  std::optional<FolderModel> found;
  try {
    found = environment.model_of_folder(value_text(*load));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;
    parsed.problems.emplace_back(error.what());
    parsed.file_is_unread = true;
  }
  if (!found) return;
  ModelConfig defaults;
  const OptionTable theirs = options_of(found->model), usual = options_of(defaults);
  for (size_t i = 0; i < theirs.options().size(); ++i)
    if (!same_value(theirs.options()[i], usual.options()[i]))
      take_value(table, theirs.options()[i], found->origin, parsed);
  const bool needs_tokenizer = std::none_of(kTokenizerOptions.begin(), kTokenizerOptions.end(),
                                            [&](const char* name) { return parsed.origins.contains(name); });
  if (!needs_tokenizer || !found->data.tokenizer_type) return;
  PretrainConfig holder;
  holder.data = found->data;
  const OptionTable tokenizer = options_of(holder);
  for (const char* name : {"tokenizer-type", "tokenizer-model", "tokenizer-merges", "tiktoken-pattern",
                           "tiktoken-num-special-tokens", "tiktoken-special-tokens", "eod-token"})
    if (const Option* const option = tokenizer.find(name)) take_value(table, *option, found->origin, parsed);
}

std::string derived_from(const Option& option, const std::map<std::string, std::string>& origins) {
  constexpr std::string_view kSteps = "-iters";
  if (option.name.ends_with(kSteps)) {
    const std::string samples = option.name.substr(0, option.name.size() - kSteps.size()) + "-samples";
    if (origins.count(samples) > 0) return "derived: --" + samples;
  }
  return option.when_absent.empty() ? "derived" : "derived: " + option.when_absent;
}

CommandFiles files_of(const OptionTable& table, const Parsed& parsed) {
  CommandFiles files;
  files.overwrite = parsed.overwrite;
  for (const Option& option : table.options()) {
    const bool given = parsed.origins.count(option.name) > 0;  // defaults name no files
    if (!given || option.use == FileUse::None || option.use == FileUse::Unused) continue;
    for (const std::string& word : value_words(option).value_or(std::vector<std::string>()))
      files.files.push_back({"--" + option.name, word, option.use, option.marks});
  }
  if (parsed.config) files.files.push_back({"--config", *parsed.config, FileUse::Read});
  return files;
}

void check_overwrite(const CommandFiles& files) {
  const auto is_replaced = [](const NamedFile& file) {
    return file.use == FileUse::Written || file.use == FileUse::TokenPairs;
  };
  if (files.overwrite && std::none_of(files.files.begin(), files.files.end(), is_replaced))
    bad_input("--overwrite has no effect: no option names a file that would be replaced; leave it out");
}

}  // namespace trifold
