#include "config/command_line/read_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/options/check_rules.h"

namespace trifold {

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
