// The options of each command, bound to the fields of its configuration: the one place where option names,
// spellings and help texts are written down. Defaults are those of the structs in config.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/option.h"

namespace trifold {

// The table points into `config`.
OptionTable options_of(PretrainConfig& config);
OptionTable options_of(FinetuneConfig& config);
OptionTable options_of(GenerateConfig& config);
OptionTable options_of(EvaluateConfig& config);
OptionTable options_of(InspectConfig& config);
OptionTable options_of(ReshardConfig& config);
OptionTable options_of(ConvertConfig& config);
OptionTable options_of(BenchConfig& config);
OptionTable options_of(PlanConfig& config);
OptionTable options_of(TokenizeConfig& config);
OptionTable options_of(PreprocessConfig& config);
OptionTable options_of(RecommendConfig& config);  // recommend_options.cpp
OptionTable options_of(PlanRecommenderConfig& config);

// Only those of a model, and what it ends in: what a checkpoint remembers of it.
OptionTable options_of(ModelConfig& config);

// What --help says about a command before its options.
struct CommandInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view usage;    // what follows "trifold NAME"
  std::vector<std::string_view> examples;
};

const std::vector<CommandInfo>& commands();
const CommandInfo& command_info(std::string_view name);

}  // namespace trifold
