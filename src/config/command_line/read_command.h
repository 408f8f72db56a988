// read_command parses the words after a command's name into its configuration. Only the table of commands
// (commands.cpp) uses it, once per command.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/command_line/command_info.h"
#include "config/command_line/help.h"
#include "config/command_line/parse.h"
#include "config/command_line/print_config.h"
#include "config/commands/validate.h"
#include "core/error.h"

namespace trifold {

inline MeshConfig* mesh_of(PretrainConfig& config) { return &config.mesh; }
inline MeshConfig* mesh_of(FinetuneConfig& config) { return &config.run.mesh; }
inline MeshConfig* mesh_of(EvaluateConfig& config) { return &config.mesh; }
inline MeshConfig* mesh_of(EvaluateTaskConfig& config) { return &config.mesh; }
inline MeshConfig* mesh_of(BenchConfig& config) { return &config.run.mesh; }
inline MeshConfig* mesh_of(RecommendConfig& config) { return &config.mesh; }
inline MeshConfig* mesh_of(ScoreConfig& config) { return &config.run.mesh; }
inline MeshConfig* mesh_of(EvaluateRecommenderConfig& config) { return &config.run.mesh; }
template <class Config>
MeshConfig* mesh_of(Config&) {
  return nullptr;
}

// Under MPI the number of ranks is the number of processes.
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

inline const OptimizerConfig* optimizer_of(const PretrainConfig& config) { return &config.optimizer; }
inline const OptimizerConfig* optimizer_of(const FinetuneConfig& config) { return &config.run.optimizer; }
inline const OptimizerConfig* optimizer_of(const PlanConfig& config) { return &config.run.optimizer; }
inline const OptimizerConfig* optimizer_of(const RehearsePretrainConfig& config) {
  return optimizer_of(config.plan);
}
inline const OptimizerConfig* optimizer_of(const RehearseFinetuneConfig& config) {
  return optimizer_of(config.run);
}
template <class Config>
const OptimizerConfig* optimizer_of(const Config&) {
  return nullptr;
}

// Records the options given on the command line in a configuration that otherwise takes values from elsewhere. A
// configuration file may have been written by --print-config, which lists every option; there only a value other than
// the default counts as given (inherit_model in commands/json.h).
inline void note_given(RecommendConfig& config, const Parsed& parsed) {
  for (const auto& [name, origin] : parsed.origins)
    if (origin.starts_with(kCommandLine)) config.given.insert(name);
}
inline void note_given(PlanRecommenderConfig& config, const Parsed& parsed) {
  note_given(config.run, parsed);
}
inline void note_given(RehearseRecommenderConfig& config, const Parsed& parsed) {
  note_given(config.plan, parsed);
}
inline void note_given(PlanConfig& config, const Parsed& parsed) {
  const auto length = parsed.origins.find("train-iters");
  config.length_given = length != parsed.origins.end() && length->second.starts_with(kCommandLine);
}
inline void note_given(RehearsePretrainConfig& config, const Parsed& parsed) {
  note_given(config.plan, parsed);
}
template <class Config>
void note_given(Config&, const Parsed&) {}

// The given options of `table` that `command` has too, as words for a shell: "--config run.cfg --ranks 8". Options in a
// configuration file are given by the file, unless it has one that `command` lacks or that names an output.
std::vector<std::string> words_for(std::string_view command, const OptionTable& table, const Parsed& parsed);

// Records how the run that is planned can be rehearsed.
template <class Config>
void note_rehearsal(Config&, const OptionTable&, const Parsed&) {}
inline void note_rehearsal(PlanConfig& config, const OptionTable& table, const Parsed& parsed) {
  config.rehearsal_words = words_for("rehearse", table, parsed);
}
inline void note_rehearsal(PlanRecommenderConfig& config, const OptionTable& table, const Parsed& parsed) {
  config.rehearsal_words = words_for("rehearse-recommender", table, parsed);
}

// See check_unused.
void add_unused_by_optimizer(const OptionTable& table, Parsed& parsed);

// On the command line, an option that the optimizer does not use is a mistake even with its default value. A
// configuration file may have been written by --print-config, which lists every option; there only a value other than
// the default is a mistake.
template <class Config>
void check_unused(const Config& config, const OptionTable& table, Parsed& parsed) {
  if (optimizer_of(config) != nullptr && parsed.doubtful.count("optimizer") == 0)
    add_unused_by_optimizer(table, parsed);
}

// In a command that trains a model from its options, gives the options of the model and of its tokenizer that the user
// left out the values in the folder of --load, if that describes a model.
void take_folder_model(const OptionTable& table, const Environment& environment, Parsed& parsed);

// Uses the positional words: the folder of `inspect`, the file of `import-config`, the logs of `report`; a mistake in
// every other command.
template <class Config>
void take_positional(Config&, Parsed& parsed) {
  for (const std::string& word : parsed.positional)
    parsed.problems.push_back(fmt::format("'{}' belongs to no option", word));
}
inline void take_positional(InspectConfig& config, Parsed& parsed) {
  if (!parsed.positional.empty()) config.directory = parsed.positional[0];
  for (size_t i = 1; i < parsed.positional.size(); ++i)
    parsed.problems.push_back(fmt::format("'{}': one checkpoint is inspected; compare two with --diff OTHER",
                                          parsed.positional[i]));
}

inline void take_positional(ReportConfig& config, Parsed& parsed) { config.runs = parsed.positional; }

inline void take_positional(ImportConfig& config, Parsed& parsed) {
  if (!parsed.positional.empty()) config.file = parsed.positional[0];
  for (size_t i = 1; i < parsed.positional.size(); ++i)
    parsed.problems.push_back(fmt::format("'{}': one file is read at a time", parsed.positional[i]));
}

// Completes the files that options do not name: outputs whose names the command makes, or whose kind other options
// decide, and inputs given without an option.
template <class Config>
void settle_files(const Config&, std::vector<NamedFile>&) {}
inline void settle_files(const TokenizeConfig& config, std::vector<NamedFile>& files) {
  for (NamedFile& prefix : std::exchange(files, {})) {
    if (prefix.use != FileUse::TokenPairs) {
      files.push_back(prefix);
      continue;
    }
    for (const std::string& key : config.json_keys)
      files.push_back({prefix.option, fmt::format("{}_{}_document", prefix.path, key), prefix.use});
  }
}
inline void settle_files(const ReportConfig& config, std::vector<NamedFile>& files) {
  for (const std::string& run : config.runs) files.push_back({"RUN", run, FileUse::Read});
}
// A recommender is converted to a file, a language model to a folder.
inline void settle_files(const ConvertConfig&, std::vector<NamedFile>& files) {
  for (NamedFile& file : files) {
    if (file.use != FileUse::Filled) continue;
    if (file.path.ends_with(".onnx")) file.marks = {{"\x08\x07\x12\x07trifold", ""}};
    if (file.path.ends_with(".safetensors")) file.marks = {{"", "\"made_by\":\"trifold convert\""}};
    if (!file.marks.empty()) file.use = FileUse::Written;
  }
}

// The files that the command line names, in options of the command's table and in options common to all commands.
CommandFiles files_of(const OptionTable& table, const Parsed& parsed);
// BadInput if --overwrite is given without an output that it could affect.
void check_overwrite(const CommandFiles& files);

// All mistakes in the words and in the configuration as a whole, each reported once: a value that could not be read is
// not also reported as missing.
std::vector<std::string> all_problems(const Parsed& parsed, const std::vector<Problem>& whole);

// The origin of a derived value. A length in steps follows from the same length in samples if that is given.
std::string derived_from(const Option& option, const std::map<std::string, std::string>& origins);

// Resolves `config` and records in `origins` which of its values were derived.
template <class Config>
void resolve_noting(Config& config, const OptionTable& table, std::map<std::string, std::string>& origins) {
  std::vector<std::string> before;
  for (const Option& option : table.options()) before.push_back(value_text(option));
  config = resolve(std::move(config));  // the table's pointers stay valid: same object
  for (size_t i = 0; i < before.size(); ++i) {
    const Option& option = table.options()[i];
    if (value_words(option) && value_text(option) != before[i])
      origins[option.name] = derived_from(option, origins);
  }
}

template <class Config>
Request read_command(const CommandInfo& info, std::span<const std::string> arguments,
                     const Environment& environment, Remarks& remarks) {
  Config config;
  const OptionTable table = options_of(config);
  Parsed parsed = parse_options(table, arguments);
  if (parsed.help) {
    config = Config();  // help shows defaults
    return TextRequest{help_text(info, table, environment.terminal_width)};
  }
  remarks.given_as = parsed.given_as;
  take_folder_model(table, environment, parsed);
  take_processes(config, environment.mpi_processes, parsed);
  take_positional(config, parsed);
  note_given(config, parsed);
  check_unused(config, table, parsed);
  const Findings found = findings(config);
  throw_problems(all_problems(parsed, found.errors));
  remarks.notes = parsed.notes;
  for (const Problem& note : found.notes) remarks.notes.push_back(text_of(note));
  note_rehearsal(config, table, parsed);
  resolve_noting(config, table, parsed.origins);
  if (parsed.print_config) return TextRequest{print_config(info, table, parsed.origins)};
  if (info.one_process && environment.mpi_processes > 1)
    bad_input("this command runs as one process: start it without the MPI launcher");
  remarks.files = files_of(table, parsed);
  settle_files(config, remarks.files.files);
  check_overwrite(remarks.files);
  return config;
}

}  // namespace trifold
