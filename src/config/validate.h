// Checks of a configuration as a whole, and the values that follow from others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace trifold {

// Everything that is wrong with a configuration, one sentence each, naming the options and the values that
// would be right; empty when it can run. Nothing is read from disk: whether files exist is checked by the
// rooms that open them.
std::vector<std::string> problems(const PretrainConfig& config);
std::vector<std::string> problems(const FinetuneConfig& config);
std::vector<std::string> problems(const GenerateConfig& config);
std::vector<std::string> problems(const EvaluateConfig& config);
std::vector<std::string> problems(const InspectConfig& config);
std::vector<std::string> problems(const ReshardConfig& config);
std::vector<std::string> problems(const ConvertConfig& config);
std::vector<std::string> problems(const BenchConfig& config);
std::vector<std::string> problems(const PlanConfig& config);
std::vector<std::string> problems(const TokenizeConfig& config);
std::vector<std::string> problems(const PreprocessConfig& config);
std::vector<std::string> problems(const RecommendConfig& config);
std::vector<std::string> problems(const PlanRecommenderConfig& config);

// The first option of BERT's pairs that has another value than its default: to be refused for other models.
std::optional<std::string> given_option_of_pairs(const DataConfig& data);

// Returns the configuration with its derived values filled in: ffn_hidden_size, max_position_embeddings,
// data_parallel_size, global_batch_size, the schedule with its stages of a rank and window, and
// lr_decay_iters (and train_iters of a benchmark). What depends on the host or on files stays unset:
// threads_per_rank, vocab_size, tokenizer_type. A value that was given is never changed. Throws
// Error(BadInput) listing all problems.
PretrainConfig resolve(PretrainConfig config);
FinetuneConfig resolve(FinetuneConfig config);
GenerateConfig resolve(GenerateConfig config);
EvaluateConfig resolve(EvaluateConfig config);
InspectConfig resolve(InspectConfig config);
ReshardConfig resolve(ReshardConfig config);
ConvertConfig resolve(ConvertConfig config);
BenchConfig resolve(BenchConfig config);
PlanConfig resolve(PlanConfig config);
TokenizeConfig resolve(TokenizeConfig config);
PreprocessConfig resolve(PreprocessConfig config);
RecommendConfig resolve(RecommendConfig config);
PlanRecommenderConfig resolve(PlanRecommenderConfig config);

// Where a run stands: what it has done before.
struct RunPosition {
  int64_t steps = 0;
  int64_t consumed_samples = 0;
};

// For a resolved configuration with train_epochs: `samples` is what those passes give in all. Fills in
// train_samples and train_iters, and what follows from them: lr_decay_iters and async_window where they are
// not given. Throws like resolve.
PretrainConfig resolve_length(PretrainConfig config, int64_t samples, const RunPosition& from);

// "--adam-beta1 has no effect with --optimizer sgd: ..." for an option that only other optimizers use;
// nullopt for every other option.
std::optional<std::string> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer);

// Throws Error(BadInput) when `list` is not empty: one problem as it is, several as a list of lines.
void throw_problems(const std::vector<std::string>& list);

}  // namespace trifold
