// The commands of the program: each prints its output and returns an exit status. Errors are thrown; main reports them.
#pragma once

#include "config/fields/judged_config.h"
#include "config/fields/recommend_config.h"
#include "config/fields/rehearse_config.h"
#include "run/ranks.h"

namespace trifold::launch {

// The documented exit statuses.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInterrupted = 75;  // stopped on a signal, the checkpoint is saved

int run(const PretrainConfig& config, Ranks& ranks);
int run(const FinetuneConfig& config, Ranks& ranks);
int run(const GenerateConfig& config, Ranks& ranks);
int run(const EvaluateConfig& config, Ranks& ranks);
int run(const EvaluateTaskConfig& config, Ranks& ranks);
int run(const ServeConfig& config, Ranks& ranks);
int run(const InspectConfig& config);
int run(const ImportConfig& config);
int run(const ReshardConfig& config);
int run(const ConvertConfig& config);
int run(const BenchConfig& config, Ranks& ranks);
int run(const PlanConfig& given);
int run(const PlanLinesConfig& config);
int run(const TokenizeConfig& config);
int run(const DoctorConfig& config);
int run(const ReportConfig& config);
int run(const PreprocessConfig& config);
int run(const RecommendConfig& config, Ranks& ranks);
int run(const PlanRecommenderConfig& config);
int run(const ScoreConfig& config, Ranks& ranks);
int run(const EvaluateRecommenderConfig& config, Ranks& ranks);
int run(const RehearsePretrainConfig& config);
int run(const RehearseFinetuneConfig& config);
int run(const RehearseRecommenderConfig& config);

}  // namespace trifold::launch
