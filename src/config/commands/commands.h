// The functions that every command's configuration has: options, checks and derived values.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "config/fields/judged_config.h"
#include "config/fields/recommend_config.h"
#include "config/fields/rehearse_config.h"
#include "config/options/option.h"
#include "config/options/problem.h"

namespace trifold {

// options_of: the command's options, bound to the fields of `config`; the table points into `config`.
//
// findings: every mistake in the configuration, with the options concerned and a remedy (options/problem.h), and notes
// about options without effect. A configuration without errors can run. Nothing is read from disk: the code that opens
// files checks whether they exist.
//
// resolve: the configuration with its derived values filled in: ffn_hidden_size, max_position_embeddings,
// data_parallel_size, global_batch_size, the schedule with its stages per rank and window, and lr_decay_iters (and
// train_iters of a benchmark). Values that depend on the host or on files stay unset: threads_per_rank, vocab_size,
// tokenizer_type. Given values are never changed. Throws Error(BadInput) listing all problems.
OptionTable options_of(PretrainConfig& config);
Findings findings(const PretrainConfig& given);
PretrainConfig resolve(PretrainConfig config);

// Whether options give the length of a planned run, also its default value.
bool knows_length(const PlanConfig& config);

OptionTable options_of(FinetuneConfig& config);
Findings findings(const FinetuneConfig& config);
FinetuneConfig resolve(FinetuneConfig config);

OptionTable options_of(GenerateConfig& config);
Findings findings(const GenerateConfig& config);
GenerateConfig resolve(GenerateConfig config);

OptionTable options_of(EvaluateConfig& config);
Findings findings(const EvaluateConfig& config);
EvaluateConfig resolve(EvaluateConfig config);

OptionTable options_of(EvaluateTaskConfig& config);
Findings findings(const EvaluateTaskConfig& config);
EvaluateTaskConfig resolve(EvaluateTaskConfig config);

OptionTable options_of(ServeConfig& config);
Findings findings(const ServeConfig& config);
ServeConfig resolve(ServeConfig config);

OptionTable options_of(InspectConfig& config);
Findings findings(const InspectConfig& config);
InspectConfig resolve(InspectConfig config);

OptionTable options_of(ImportConfig& config);
Findings findings(const ImportConfig& config);
ImportConfig resolve(ImportConfig config);

OptionTable options_of(ReshardConfig& config);
Findings findings(const ReshardConfig& config);
ReshardConfig resolve(ReshardConfig config);

OptionTable options_of(ConvertConfig& config);
Findings findings(const ConvertConfig& config);
ConvertConfig resolve(ConvertConfig config);

OptionTable options_of(BenchConfig& config);
Findings findings(const BenchConfig& given);
BenchConfig resolve(BenchConfig config);

OptionTable options_of(PlanConfig& config);
Findings findings(const PlanConfig& given);
PlanConfig resolve(PlanConfig config);

OptionTable options_of(PlanLinesConfig& config);
Findings findings(const PlanLinesConfig& config);
PlanLinesConfig resolve(PlanLinesConfig config);

OptionTable options_of(DoctorConfig& config);
Findings findings(const DoctorConfig& config);
DoctorConfig resolve(DoctorConfig config);

OptionTable options_of(ReportConfig& config);
Findings findings(const ReportConfig& config);
ReportConfig resolve(ReportConfig config);

OptionTable options_of(TokenizeConfig& config);
Findings findings(const TokenizeConfig& config);
TokenizeConfig resolve(TokenizeConfig config);

OptionTable options_of(PreprocessConfig& config);
Findings findings(const PreprocessConfig& config);
PreprocessConfig resolve(PreprocessConfig config);

OptionTable options_of(RecommendConfig& config);
Findings findings(const RecommendConfig& config);
RecommendConfig resolve(RecommendConfig config);

OptionTable options_of(PlanRecommenderConfig& config);
Findings findings(const PlanRecommenderConfig& config);
PlanRecommenderConfig resolve(PlanRecommenderConfig config);

OptionTable options_of(RehearsePretrainConfig& config);
Findings findings(const RehearsePretrainConfig& config);
RehearsePretrainConfig resolve(RehearsePretrainConfig config);

OptionTable options_of(RehearseFinetuneConfig& config);
Findings findings(const RehearseFinetuneConfig& config);
RehearseFinetuneConfig resolve(RehearseFinetuneConfig config);

OptionTable options_of(RehearseRecommenderConfig& config);
Findings findings(const RehearseRecommenderConfig& config);
RehearseRecommenderConfig resolve(RehearseRecommenderConfig config);

OptionTable options_of(ScoreConfig& config);
Findings findings(const ScoreConfig& config);
ScoreConfig resolve(ScoreConfig config);

OptionTable options_of(EvaluateRecommenderConfig& config);
Findings findings(const EvaluateRecommenderConfig& config);
EvaluateRecommenderConfig resolve(EvaluateRecommenderConfig config);

// The errors among the findings.
template <class Config>
std::vector<Problem> problems(const Config& config) {
  return findings(config).errors;
}

// A request to print this text on standard output: --help, --version, --print-config, completion, man-page.
struct TextRequest {
  std::string text;
};

// A command with its configuration, checked and resolved, or a text to print.
using Request =
    std::variant<TextRequest, PretrainConfig, FinetuneConfig, GenerateConfig, EvaluateConfig, InspectConfig,
                 ImportConfig, ReshardConfig, ConvertConfig, BenchConfig, PlanConfig, TokenizeConfig,
                 PreprocessConfig, RecommendConfig, PlanRecommenderConfig, PlanLinesConfig, ScoreConfig,
                 EvaluateRecommenderConfig, DoctorConfig, ReportConfig, EvaluateTaskConfig, ServeConfig,
                 RehearsePretrainConfig, RehearseFinetuneConfig, RehearseRecommenderConfig>;

}  // namespace trifold
