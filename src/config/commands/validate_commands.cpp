// Checks and derived values of commands that neither train from scratch nor plan.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/options/problems.h"
#include "config/subjects/mesh.h"
#include "config/subjects/recommenders/clicks.h"
#include "config/subjects/text.h"

namespace trifold {

namespace {

void check_folders(const std::string& load, const std::string& save, Problems& problems) {
  if (!load.empty() && load == save)
    problems.about("save", "load").wrong("--save {} is the folder of --load", save).right("give another");
}

// Rejects training options if nothing is trained: all except the options of the task, the options of the mesh, and the
// options listed here.
void check_evaluation_only(const FinetuneConfig& config, Problems& problems) {
  static const std::set<std::string_view> kUsed{"task",
                                                "valid-data",
                                                "predictions",
                                                "seq-length",
                                                "chat-template",
                                                "chat-date",
                                                "packing",
                                                "truncation-mode",
                                                "dpo-beta",
                                                "dpo-label-smoothing",
                                                "dpo-loss",
                                                "dpo-reference",
                                                "dpo-reference-folder",
                                                "dpo-reference-model",
                                                "doc-stride",
                                                "max-query-length",
                                                "max-answer-length",
                                                "null-score-diff-threshold",
                                                "tokenizer-type",
                                                "tokenizer-model",
                                                "tokenizer-merges",
                                                "tiktoken-pattern",
                                                "tiktoken-num-special-tokens",
                                                "tiktoken-special-tokens",
                                                "eod-token",
                                                "special-tokens-in-text",
                                                "micro-batch-size",
                                                "load",
                                                "log-json",
                                                "save"};
  FinetuneConfig copy = config, plain;
  const OptionTable given = options_of(copy), defaults = options_of(plain);
  for (size_t i = 0; i < given.options().size(); ++i) {
    const Option& option = given.options()[i];
    if (kUsed.count(option.name) > 0) continue;
    if (option.group == "Mesh of ranks" && option.name != "enable-cuda-graph" &&
        option.name != "tune-products" && option.name != "no-deterministic-mode")
      continue;
    if (value_words(option) != value_words(defaults.options()[i]))
      problems.about(option.name, "train-data")
          .wrong("--{} has no effect without --train-data FILE", option.name)
          .right("leave it out");
  }
  if (config.run.checkpoint.save)
    problems.about("save", "train-data")
        .wrong("--save {} has no effect without --train-data FILE", *config.run.checkpoint.save)
        .right("leave it out");
}

// Of a task whose samples are pairs.
void check_pairs(const FinetuneConfig& config, Problems& problems) {
  if (config.task != FinetuneTask::Dpo) return;
  if (const int64_t samples = config.run.batch.micro_batch_size; samples % 2 != 0)
    problems.about("micro-batch-size", "task")
        .wrong("--micro-batch-size {} is odd, but the samples of --task dpo are pairs", samples)
        .right("give an even number");
  if (!config.train_data && config.dpo_reference == PairReference::Model && !config.dpo_reference_model)
    problems.about("dpo-reference-model", "train-data", "load")
        .wrong(
            "without --train-data FILE, the model of --load is compared with a reference, which is not given")
        .right("give --dpo-reference-model DIR, or --dpo-reference none");
}

// Whether an option's rules are checked before the model is known: the rules of training are checked later, but if
// nothing is trained its options are rejected at once.
bool is_checked_without_model(const std::string& group, bool trains) {
  return group == "Task" || group == "Tokenizer" || group == "Mesh of ranks" ||
         (trains && (group == "Checkpoint" || group == "Evaluation"));
}

}  // namespace

// The checks that do not need the model; resolve(PretrainConfig) does the others once it is known.
Findings findings(const FinetuneConfig& config) {
  Problems problems = problems_of_options(config, [&](const Option& option, const Rule& rule) {
    return rule.severity == Severity::Note ||
           is_checked_without_model(option.group, config.train_data.has_value());
  });
  check_mesh(config.run.mesh, problems);
  if (!config.run.checkpoint.load)
    problems.about("load").wrong("--load needs a value").right("the folder of a trained model");
  if (!config.train_data && !config.valid_data)
    problems.about("train-data", "valid-data")
        .wrong("neither --train-data nor --valid-data is given")
        .right(
            "give --train-data FILE to tune the model, --valid-data FILE to evaluate a tuned one, or both");
  if (!config.train_data) check_evaluation_only(config, problems);
  check_pairs(config, problems);
  return problems.findings();
}

FinetuneConfig resolve(FinetuneConfig config) {
  throw_problems(problems(config));
  if (!config.run.mesh.data_parallel_size)
    config.run.mesh.data_parallel_size = static_cast<int>(data_parallel_size(config.run.mesh));
  return config;
}

Findings findings(const GenerateConfig& config) {
  Problems problems = problems_of_options(config);
  if (std::count(config.stop.begin(), config.stop.end(), "") > 0)
    problems.about("stop")
        .wrong("--stop \"\" would end a continuation before it begins")
        .right("give a text of at least one character, or leave it out");
  return problems.findings();
}

GenerateConfig resolve(GenerateConfig config) { return without_problems(std::move(config)); }

Findings findings(const EvaluateConfig& config) {
  Problems problems = problems_of_options(config);
  check_mesh(config.mesh, problems);
  check_data(config.data, problems);
  check_part(config.data, config.part, fmt::format("--part {}", name_of(config.part)), {"split", "part"},
             problems);
  return problems.findings();
}

EvaluateConfig resolve(EvaluateConfig config) {
  throw_problems(problems(config));
  if (!config.mesh.data_parallel_size)
    config.mesh.data_parallel_size = static_cast<int>(data_parallel_size(config.mesh));
  return config;
}

Findings findings(const InspectConfig& config) {
  Problems problems = problems_of_options(config);
  if (config.directory.empty() && !config.flight)
    problems.about().wrong("no checkpoint is named").right("name the one to look at: trifold inspect DIR");
  if (!config.directory.empty() && config.flight)
    problems.about("flight")
        .wrong("a checkpoint, {}, is named beside --flight", config.directory)
        .right("leave one of the two out");
  return problems.findings();
}

InspectConfig resolve(InspectConfig config) { return without_problems(std::move(config)); }

Findings findings(const ImportConfig& config) {
  Problems problems = problems_of_options(config);
  if (config.file.empty())
    problems.about()
        .wrong("no file is named")
        .right("name DeepSpeed's JSON or accelerate's YAML: trifold import-config FILE");
  return problems.findings();
}

ImportConfig resolve(ImportConfig config) { return without_problems(std::move(config)); }

// The mesh is checked later, against the model in the checkpoint.
Findings findings(const ReshardConfig& config) {
  Problems problems = problems_of_options(
      config, [](const Option& option, const Rule&) { return option.group == "Checkpoint"; });
  const bool mesh = config.mesh.tensor_model_parallel_size > 1 || config.mesh.context_parallel_size > 1 ||
                    config.mesh.expert_ranks() > 1 || config.mesh.pipeline_model_parallel_size > 1 ||
                    config.mesh.data_parallel_size.value_or(1) > 1 || config.mesh.ranks > 1;
  if (config.files && mesh)
    problems
        .about("files", "tensor-model-parallel-size", "context-parallel-size", "expert-model-parallel-size",
               "expert-tensor-parallel-size", "pipeline-model-parallel-size", "data-parallel-size", "ranks")
        .wrong("--files {} and a mesh exclude each other", *config.files)
        .right("give one of them");
  if (config.mesh.ranks > 1) check_mesh(config.mesh, problems);  // else they follow from the sizes
  check_folders(config.load, config.save, problems);
  return problems.findings();
}

ReshardConfig resolve(ReshardConfig config) {
  config = without_problems(std::move(config));
  MeshConfig& mesh = config.mesh;
  if (mesh.ranks > 1 && !mesh.data_parallel_size)
    mesh.data_parallel_size = static_cast<int>(data_parallel_size(mesh));
  return config;
}

Findings findings(const ConvertConfig& config) {
  Problems problems = problems_of_options(config);
  check_folders(config.load, config.save, problems);
  return problems.findings();
}

ConvertConfig resolve(ConvertConfig config) { return without_problems(std::move(config)); }

Findings findings(const PlanLinesConfig& config) { return problems_of_options(config).findings(); }

PlanLinesConfig resolve(PlanLinesConfig config) { return without_problems(std::move(config)); }

Findings findings(const DoctorConfig& config) { return problems_of_options(config).findings(); }

DoctorConfig resolve(DoctorConfig config) { return without_problems(std::move(config)); }

Findings findings(const ReportConfig& config) {
  Problems problems = problems_of_options(config);
  if (config.runs.empty())
    problems.about()
        .wrong("no run is named")
        .right("name the logs: trifold report RUN... --output FILE.html");
  return problems.findings();
}

ReportConfig resolve(ReportConfig config) { return without_problems(std::move(config)); }

Findings findings(const TokenizeConfig& config) {
  Problems problems = problems_of_options(config);
  return problems.findings();
}

TokenizeConfig resolve(TokenizeConfig config) { return without_problems(std::move(config)); }

Findings findings(const PreprocessConfig& config) {
  Problems problems = problems_of_options(config);
  check_clicks(config, problems);
  return problems.findings();
}

PreprocessConfig resolve(PreprocessConfig config) { return without_problems(std::move(config)); }

}  // namespace trifold
