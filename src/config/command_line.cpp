#include "config/command_line.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "config/completion.h"
#include "config/config_file.h"
#include "config/help.h"
#include "config/nearest.h"
#include "config/option_tables.h"
#include "config/parse.h"
#include "config/print_config.h"
#include "config/validate.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {
namespace {

using Words = std::span<const std::string>;

MeshConfig* mesh_of(PretrainConfig& config) { return &config.mesh; }
MeshConfig* mesh_of(FinetuneConfig& config) { return &config.run.mesh; }
MeshConfig* mesh_of(EvaluateConfig& config) { return &config.mesh; }
MeshConfig* mesh_of(BenchConfig& config) { return &config.run.mesh; }
MeshConfig* mesh_of(RecommendConfig& config) { return &config.mesh; }
template <class Config>
MeshConfig* mesh_of(Config&) {
  return nullptr;
}

// Under MPI the number of ranks is that of the processes.
template <class Config>
void take_processes(Config& config, int processes, Parsed& parsed) {
  MeshConfig* mesh = mesh_of(config);
  if (mesh == nullptr || processes <= 0) return;
  if (parsed.origins.count("ranks") > 0 && mesh->ranks != processes) {
    parsed.problems.push_back(
        fmt::format("--ranks {}, but there are {} MPI processes: leave --ranks out or give {}", mesh->ranks,
                    processes, processes));
    parsed.doubtful.insert("ranks");
  } else if (parsed.origins.count("ranks") == 0) {
    mesh->ranks = processes;
    parsed.origins["ranks"] = "the number of MPI processes";
  }
}

const OptimizerConfig* optimizer_of(const PretrainConfig& config) { return &config.optimizer; }
const OptimizerConfig* optimizer_of(const FinetuneConfig& config) { return &config.run.optimizer; }
const OptimizerConfig* optimizer_of(const PlanConfig& config) { return &config.run.optimizer; }
template <class Config>
const OptimizerConfig* optimizer_of(const Config&) {
  return nullptr;
}

// An option that the optimizer does not use is a mistake on the command line whatever its value, the default
// included. A file may come from --print-config, which writes every option: there the value decides
// (validate.cpp).
template <class Config>
void check_unused(const Config& config, Parsed& parsed) {
  const OptimizerConfig* optimizer = optimizer_of(config);
  if (optimizer == nullptr || parsed.doubtful.count("optimizer") > 0) return;
  for (const auto& [name, origin] : parsed.origins)
    if (const auto problem = unused_by_optimizer(name, *optimizer);
        problem && origin.starts_with("command line")) {
      parsed.problems.push_back(*problem);
      parsed.doubtful.insert(name);
    }
}

// Words that belong to no option: the folder of `inspect`, a mistake everywhere else.
template <class Config>
void take_positional(Config&, Parsed& parsed) {
  for (const std::string& word : parsed.positional)
    parsed.problems.push_back(fmt::format("'{}' belongs to no option", word));
}
void take_positional(InspectConfig& config, Parsed& parsed) {
  if (!parsed.positional.empty()) config.directory = parsed.positional[0];
  for (size_t i = 1; i < parsed.positional.size(); ++i)
    parsed.problems.push_back(fmt::format("'{}': one checkpoint is inspected; compare two with --diff OTHER",
                                          parsed.positional[i]));
}

// Whether `text` speaks of option `name`, and not of a longer one that begins alike.
bool mentions(const std::string& text, const std::string& name) {
  const std::string option = "--" + name;
  for (size_t at = text.find(option); at != std::string::npos; at = text.find(option, at + 1)) {
    const size_t end = at + option.size();
    if (end == text.size() || (text[end] != '-' && !std::isalnum(static_cast<unsigned char>(text[end]))))
      return true;
  }
  return false;
}

// What is wrong with the words, and what is wrong with the values as a whole; nothing twice: a value that
// could not be read is not also reported as missing.
std::vector<std::string> all_problems(const Parsed& parsed, const std::vector<std::string>& whole) {
  std::vector<std::string> list = parsed.problems;
  std::copy_if(whole.begin(), whole.end(), std::back_inserter(list), [&](const std::string& problem) {
    return std::none_of(parsed.doubtful.begin(), parsed.doubtful.end(),
                        [&](const std::string& name) { return mentions(problem, name); });
  });
  // The 0 of an option that is not given is a missing value; one that is given is a wrong value.
  for (std::string& problem : list)
    for (const auto& [name, origin] : parsed.origins)
      if (const std::string missing = "--" + name + " needs a value: "; problem.starts_with(missing))
        problem = fmt::format("--{} 0 is not possible: it must be {}", name, problem.substr(missing.size()));
  return list;
}

// Replaces `config` by its resolved form and notes which of its values were derived.
template <class Config>
void resolve_noting(Config& config, const OptionTable& table, std::map<std::string, std::string>& origins) {
  std::vector<const Option*> unset;
  for (const Option& option : table.options())
    if (!value_words(option)) unset.push_back(&option);
  config = resolve(std::move(config));  // the table's pointers stay good: same object
  for (const Option* option : unset)
    if (value_words(*option)) origins[option->name] = "derived: " + option->when_absent;
}

template <class Config>
Request read_command(const CommandInfo& info, Words arguments, const Surroundings& surroundings) {
  Config config;
  const OptionTable table = options_of(config);
  Parsed parsed = parse_options(table, arguments);
  if (parsed.help) {
    config = Config();  // help shows defaults
    return TextRequest{help_text(info, table, surroundings.terminal_width)};
  }
  take_processes(config, surroundings.mpi_processes, parsed);
  take_positional(config, parsed);
  check_unused(config, parsed);
  throw_problems(all_problems(parsed, problems(config)));
  resolve_noting(config, table, parsed.origins);
  if (parsed.print_config) return TextRequest{print_config(info, table, parsed.origins)};
  return config;
}

Request read_completion(Words arguments) {
  const bool help = std::any_of(arguments.begin(), arguments.end(),
                                [](const std::string& word) { return word == "--help" || word == "-h"; });
  if (help) {
    const CommandInfo& info = command_info("completion");
    return TextRequest{fmt::format("usage: trifold {} {}\n\n{}\n\nexample:\n  {}\n", info.name, info.usage,
                                   info.summary, info.examples.at(0))};
  }
  if (arguments.size() == 1 && arguments[0] == "bash") return TextRequest{bash_completion()};
  if (arguments.empty()) bad_input("completion needs the name of a shell: trifold completion bash");
  bad_input("completion is there for bash only, not for '{}': trifold completion bash",
            fmt::join(arguments.begin(), arguments.end(), " "));
}

// Whether the words after `plan`, or the file that they name, describe a recommender: only it has tables.
bool of_recommender(Words arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--table-rows" || word.starts_with("--table-rows=")) return true;
    std::string file;
    if (word.starts_with("--config=")) file = word.substr(9);
    if (word == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
    if (file.empty()) continue;
    try {
      const std::vector<FileEntry> entries = read_config_file(file);
      if (std::any_of(entries.begin(), entries.end(),
                      [](const FileEntry& entry) { return entry.name == "table-rows"; }))
        return true;
    } catch (const Error&) {  // told by whoever reads it for its values
      return false;
    }
  }
  return false;
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

Request parse_command_line(Words arguments, const Surroundings& surroundings) {
  if (arguments.size() < 2) bad_input("name a command; trifold --help lists them");
  const Words rest = arguments.subspan(2);
  const std::string name = arguments[1] == "plan" && of_recommender(rest) ? "plan-recommender" : arguments[1];
  if (name == "help" && !rest.empty()) {
    const std::vector<std::string> words{arguments[0], rest[0], "--help"};
    return parse_command_line(Words(words), surroundings);
  }
  if (name == "--help" || name == "-h" || name == "help") return TextRequest{program_help()};
  if (name == "--version") return TextRequest{version_text() + "\n"};
  const auto read = [&]<class Config>(std::type_identity<Config>) {
    return read_command<Config>(command_info(name), rest, surroundings);
  };
  if (name == "pretrain") return read(std::type_identity<PretrainConfig>());
  if (name == "finetune") return read(std::type_identity<FinetuneConfig>());
  if (name == "generate") return read(std::type_identity<GenerateConfig>());
  if (name == "evaluate") return read(std::type_identity<EvaluateConfig>());
  if (name == "inspect") return read(std::type_identity<InspectConfig>());
  if (name == "reshard") return read(std::type_identity<ReshardConfig>());
  if (name == "convert") return read(std::type_identity<ConvertConfig>());
  if (name == "bench") return read(std::type_identity<BenchConfig>());
  if (name == "plan") return read(std::type_identity<PlanConfig>());
  if (name == "tokenize") return read(std::type_identity<TokenizeConfig>());
  if (name == "preprocess") return read(std::type_identity<PreprocessConfig>());
  if (name == "recommend") return read(std::type_identity<RecommendConfig>());
  if (name == "plan-recommender") return read(std::type_identity<PlanRecommenderConfig>());
  if (name == "completion") return read_completion(rest);
  unknown_command(name);
}

Request parse_command_line(int argc, const char* const* argv, const Surroundings& surroundings) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return parse_command_line(std::span<const std::string>(arguments), surroundings);
}

std::string version_text() { return "trifold " TRIFOLD_VERSION; }

}  // namespace trifold
