#include "config/tables_by_name.h"

#include "core/error.h"

namespace trifold {
namespace {

template <class Config>
void call(FunctionRef<void(const OptionTable&)> body) {
  Config config;
  body(options_of(config));
}

}  // namespace

void with_default_table(std::string_view command, FunctionRef<void(const OptionTable&)> body) {
  if (command == "pretrain") return call<PretrainConfig>(body);
  if (command == "finetune") return call<FinetuneConfig>(body);
  if (command == "generate") return call<GenerateConfig>(body);
  if (command == "evaluate") return call<EvaluateConfig>(body);
  if (command == "inspect") return call<InspectConfig>(body);
  if (command == "reshard") return call<ReshardConfig>(body);
  if (command == "convert") return call<ConvertConfig>(body);
  if (command == "bench") return call<BenchConfig>(body);
  if (command == "plan") return call<PlanConfig>(body);
  if (command == "tokenize") return call<TokenizeConfig>(body);
  if (command == "preprocess") return call<PreprocessConfig>(body);
  if (command == "recommend") return call<RecommendConfig>(body);
  if (command == "plan-recommender") return call<PlanRecommenderConfig>(body);
  fail("the command '{}' has no options", command);
}

}  // namespace trifold
