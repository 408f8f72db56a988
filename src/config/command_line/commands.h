// The commands of the program, in one table. A new one is
//   - a configuration in config.h, with the three functions below and its name in Request,
//   - an entry in commands.cpp,
//   - a run function (launch/commands.h).
// The command line, --help, completion and the tests of all commands read the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/fields/option.h"
#include "config/fields/problem.h"
#include "config/fields/recommend_config.h"
#include "core/function_ref.h"

namespace trifold {

// Functions that every configuration has:
//
// options_of: the command's options, bound to the fields of `config`; the table points into `config`.
//
// problems: every mistake in the configuration, with the options concerned and what would be right (problem.h); empty
// if it can run. Nothing is read from disk: whether files exist is checked by the rooms that open them.
//
// resolve: the configuration with its derived values filled in: ffn_hidden_size, max_position_embeddings,
// data_parallel_size, global_batch_size, the schedule with its stages per rank and window, and lr_decay_iters (and
// train_iters of a benchmark). Values that depend on the host or on files stay unset: threads_per_rank, vocab_size,
// tokenizer_type. Given values are never changed. Throws Error(BadInput) listing all problems.
OptionTable options_of(PretrainConfig& config);
std::vector<Problem> problems(const PretrainConfig& config);
PretrainConfig resolve(PretrainConfig config);

OptionTable options_of(FinetuneConfig& config);
std::vector<Problem> problems(const FinetuneConfig& config);
FinetuneConfig resolve(FinetuneConfig config);

OptionTable options_of(GenerateConfig& config);
std::vector<Problem> problems(const GenerateConfig& config);
GenerateConfig resolve(GenerateConfig config);

OptionTable options_of(EvaluateConfig& config);
std::vector<Problem> problems(const EvaluateConfig& config);
EvaluateConfig resolve(EvaluateConfig config);

OptionTable options_of(InspectConfig& config);
std::vector<Problem> problems(const InspectConfig& config);
InspectConfig resolve(InspectConfig config);

OptionTable options_of(ReshardConfig& config);
std::vector<Problem> problems(const ReshardConfig& config);
ReshardConfig resolve(ReshardConfig config);

OptionTable options_of(ConvertConfig& config);
std::vector<Problem> problems(const ConvertConfig& config);
ConvertConfig resolve(ConvertConfig config);

OptionTable options_of(BenchConfig& config);
std::vector<Problem> problems(const BenchConfig& config);
BenchConfig resolve(BenchConfig config);

OptionTable options_of(PlanConfig& config);
std::vector<Problem> problems(const PlanConfig& config);
PlanConfig resolve(PlanConfig config);

OptionTable options_of(PlanLinesConfig& config);
std::vector<Problem> problems(const PlanLinesConfig& config);
PlanLinesConfig resolve(PlanLinesConfig config);

OptionTable options_of(TokenizeConfig& config);
std::vector<Problem> problems(const TokenizeConfig& config);
TokenizeConfig resolve(TokenizeConfig config);

OptionTable options_of(PreprocessConfig& config);
std::vector<Problem> problems(const PreprocessConfig& config);
PreprocessConfig resolve(PreprocessConfig config);

OptionTable options_of(RecommendConfig& config);
std::vector<Problem> problems(const RecommendConfig& config);
RecommendConfig resolve(RecommendConfig config);

OptionTable options_of(PlanRecommenderConfig& config);
std::vector<Problem> problems(const PlanRecommenderConfig& config);
PlanRecommenderConfig resolve(PlanRecommenderConfig config);

OptionTable options_of(ScoreConfig& config);
std::vector<Problem> problems(const ScoreConfig& config);
ScoreConfig resolve(ScoreConfig config);

OptionTable options_of(EvaluateRecommenderConfig& config);
std::vector<Problem> problems(const EvaluateRecommenderConfig& config);
EvaluateRecommenderConfig resolve(EvaluateRecommenderConfig config);

// A request that is answered by printing this text on standard output: --help, --version, --print-config,
// completion, man-page.
struct TextRequest {
  std::string text;
};

// A command with its configuration, checked and resolved, or a text to print.
using Request = std::variant<TextRequest, PretrainConfig, FinetuneConfig, GenerateConfig, EvaluateConfig,
                             InspectConfig, ReshardConfig, ConvertConfig, BenchConfig, PlanConfig,
                             TokenizeConfig, PreprocessConfig, RecommendConfig, PlanRecommenderConfig,
                             PlanLinesConfig, ScoreConfig, EvaluateRecommenderConfig>;

// The environment in which the command line is read.
struct Environment {
  int terminal_width = 80;  // columns, for --help
  int mpi_processes = 0;    // size of the MPI world when the program was started by mpirun; 0: it was not
};

struct CommandInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view usage;    // what follows "trifold NAME"
  std::vector<std::string_view> examples;
  // The command works on one text or one folder; several processes would overwrite each other's output.
  bool one_process = false;
  // The command `instead_of` with one of the options `when_given`, separated by spaces, means this command.
  std::string_view instead_of = {}, when_given = {};

  // Turns the words after the name into a request, and notes in `files` the files that they name. Throws
  // Error(BadInput) that lists every mistake.
  Request (*read)(const CommandInfo& info, std::span<const std::string> words, const Environment& environment,
                  CommandFiles& files) = nullptr;
  // Calls `body` with the table of its options, bound to a configuration of defaults that lives during the
  // call; null for a command without options (completion, man-page).
  void (*with_table)(FunctionRef<void(const OptionTable&)> body) = nullptr;
};

const std::vector<CommandInfo>& commands();
// Throws Error if there is no such command.
const CommandInfo& command_info(std::string_view name);
// `with_table` of a command. Throws Error when it has no options or does not exist.
void with_default_table(std::string_view command, FunctionRef<void(const OptionTable&)> body);

}  // namespace trifold
