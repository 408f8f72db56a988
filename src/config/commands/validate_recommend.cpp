// Checks of the options of `trifold recommend` and of its plan.
#include "config/commands/validate_recommend.h"

#include <algorithm>

#include "config/commands/json.h"
#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/options/problems.h"
#include "config/subjects/validate_data.h"
#include "config/subjects/validate_mesh.h"
#include "config/subjects/validate_training.h"

namespace trifold {

void check_table_storage(const EmbeddingPlacementConfig& placement, const MeshConfig& mesh,
                         Problems& problems) {
  if (!placement.table_storage && placement.table_cache && mesh.device != ComputeDevice::Cuda)
    problems.about("table-cache", "table-storage", "device")
        .wrong("--table-cache {} has no effect without --table-storage or --device cuda",
               *placement.table_cache)
        .right("name a folder for the tables, or leave it out");
}

namespace {

// Whether the widths of a bottom MLP can be checked before the data are opened. Data without dense features have no
// bottom MLP, and then the default must not disagree with --embedding-dim: recommender_setup checks the other data.
bool has_bottom(const DlrmConfig& model, const ClickDataConfig& data) {
  if (data.dense_features) return *data.dense_features > 0;
  return data.train_data == "synthetic" || model.bottom_mlp.numbers() != DlrmConfig().bottom_mlp.numbers();
}

void check_widths(Problems& problems, const DlrmConfig& model, bool has_dense) {
  if (has_dense && model.bottom_mlp.numbers().back() != model.embedding_dim)
    problems.about("bottom-mlp", "embedding-dim")
        .wrong(
            "--bottom-mlp {} does not end with --embedding-dim {}, "
            "so its vector cannot interact with those of the tables",
            model.bottom_mlp.text(), model.embedding_dim)
        .right("end it with that number");
  if (model.top_mlp.numbers().back() != 1)
    problems.about("top-mlp")
        .wrong("--top-mlp {} does not end with 1, the logit of a click", model.top_mlp.text())
        .right("end it with 1");
  if (model.tower_mlp.numbers().back() != 1)
    problems.about("tower-mlp")
        .wrong("--tower-mlp {} does not end with 1, the logit of a label", model.tower_mlp.text())
        .right("end it with 1");
  if (model.attention_mlp.numbers().back() != 1)
    problems.about("attention-mlp")
        .wrong("--attention-mlp {} does not end with 1, the weight of a vector", model.attention_mlp.text())
        .right("end it with 1");
  if (!model.attention && model.attention_mlp.numbers() != DlrmConfig().attention_mlp.numbers())
    problems.about("attention-mlp", "attention")
        .wrong("--attention-mlp {} has no effect without --attention", model.attention_mlp.text())
        .right("name the bags that are pooled by attention, or leave it out");
  if (model.interaction_self && model.interaction != InteractionKind::Dot)
    problems.about("interaction-self", "interaction")
        .wrong("--interaction-self has no effect with --interaction {}", name_of(model.interaction))
        .right("it needs dot");
}

void check_tables(Problems& problems, const ClickDataConfig& data) {
  if (!data.table_max_ids || !data.table_rows || !data.table_rows->list) return;
  const size_t most = data.table_max_ids->numbers().size();
  const size_t rows = data.table_rows->list->numbers().size();
  if (most != 1 && rows != 1 && most != rows)
    problems.about("table-max-ids", "table-rows")
        .wrong("--table-max-ids has {} numbers, --table-rows {}", most, rows)
        .right("give one for all, or one for each");
}

// Rejects options of synthetic clicks if the data come from a file. `measured`: a plan measures steps, which use
// synthetic clicks whatever the training data are.
void check_synthetic(Problems& problems, const ClickDataConfig& data, bool measured) {
  constexpr const char* kSynthetic = "synthetic";
  if (data.train_data == kSynthetic) return;
  if (data.data_format == kSynthetic)
    return problems.about("train-data", "data-format")
        .wrong("--train-data {} has no effect with --data-format synthetic", data.train_data)
        .right("leave one of them out");
  const ClickDataConfig plain;
  const std::pair<const char*, bool> options[] = {
      {"synthetic-samples", data.synthetic_samples != plain.synthetic_samples},
      {"synthetic-zipf", !measured && data.synthetic_zipf != plain.synthetic_zipf},
      {"synthetic-missing", !measured && data.synthetic_missing != plain.synthetic_missing},
      {"synthetic-constant", !measured && data.synthetic_constant},
      {"synthetic-labels", data.synthetic_labels != plain.synthetic_labels}};
  for (const auto& [option, changed] : options)
    if (changed)
      problems.about(option, "train-data")
          .wrong("--{} has no effect with --train-data {}, which is not synthetic", option, data.train_data)
          .right("leave one of them out");
}

void check_ftrl(Problems& problems, const RecommendConfig& config) {
  const ClickTrainingConfig& training = config.training;
  const ClickTrainingConfig plain;
  if (training.embedding_optimizer != TableOptimizer::Ftrl) {
    const std::pair<const char*, bool> options[] = {{"ftrl-alpha", training.ftrl_alpha != plain.ftrl_alpha},
                                                    {"ftrl-beta", training.ftrl_beta != plain.ftrl_beta},
                                                    {"ftrl-l1", training.ftrl_l1 != plain.ftrl_l1},
                                                    {"ftrl-l2", training.ftrl_l2 != plain.ftrl_l2}};
    for (const auto& [option, changed] : options)
      if (changed)
        problems.about(option, "embedding-optimizer")
            .wrong("--{} has no effect with --embedding-optimizer {}", option,
                   name_of(training.embedding_optimizer))
            .right("it needs ftrl");
    return;
  }
  if (training.embedding_lr.value_or(config.lr.lr) != config.lr.lr)
    problems.about("embedding-lr", "embedding-optimizer")
        .wrong("--embedding-lr has no effect with --embedding-optimizer ftrl")
        .right("its learning rate is --ftrl-alpha");
  if (training.embedding_weight_decay > 0)
    problems.about("embedding-weight-decay", "embedding-optimizer")
        .wrong("--embedding-weight-decay has no effect with --embedding-optimizer ftrl")
        .right("its L2 penalty is --ftrl-l2");
}

// Options that another option makes ineffective.
void check_unused(Problems& problems, const RecommendConfig& config) {
  const DlrmConfig& model = config.model;
  const DlrmConfig plain;
  const std::pair<const char*, bool> cross[] = {{"cross-layers", model.cross_layers != plain.cross_layers},
                                                {"cross-rank", model.cross_rank != plain.cross_rank}};
  for (const auto& [option, changed] : cross)
    if (changed && model.interaction != InteractionKind::Cross)
      problems.about(option, "interaction")
          .wrong("--{} has no effect with --interaction {}", option, name_of(model.interaction))
          .right("it needs cross");

  if (model.mmoe_experts != plain.mmoe_experts && model.multi_task != MultiTask::Mmoe)
    problems.about("mmoe-experts", "multi-task")
        .wrong("--mmoe-experts has no effect with --multi-task {}", name_of(model.multi_task))
        .right("it needs mmoe");

  const ClickTrainingConfig& training = config.training;
  const bool has_eps = training.embedding_optimizer != TableOptimizer::Sgd &&
                       training.embedding_optimizer != TableOptimizer::Ftrl;
  if (training.eps != ClickTrainingConfig().eps && training.optimizer == OptimizerKind::Sgd && !has_eps)
    problems.about("eps", "optimizer", "embedding-optimizer")
        .wrong("--eps has no effect with --optimizer sgd and --embedding-optimizer {}",
               name_of(training.embedding_optimizer))
        .right("leave it out");
  check_ftrl(problems, config);
  if (model.batch_norm && training.global_batch_size == 1)
    problems.about("batch-norm", "global-batch-size")
        .wrong("--batch-norm normalises over the samples of a step, and --global-batch-size 1 has one")
        .right("give 2 or more, or leave it out");
}

void check_length(Problems& problems, const ClickTrainingConfig& training) {
  if (training.train_iters && training.train_epochs)
    problems.about("train-iters", "train-epochs")
        .wrong("--train-iters and --train-epochs both say how long to train")
        .right("give one of them");
}

void check_recommender(Problems& problems, const RecommendConfig& config) {
  check_widths(problems, config.model, has_bottom(config.model, config.data));
  check_unused(problems, config);
  if (config.placement.bf16_exchange && config.precision.f64)
    problems.about("bf16-exchange", "f64")
        .wrong("--bf16-exchange is not possible with --f64")
        .right("leave one of them out");
}

// Whether a rule depends on an option that a run that loads a checkpoint may take from it.
constexpr auto is_about_model = [](const Option& option, const Rule& rule) {
  return is_inherited(option.name) ||
         is_about(rule, [](std::string_view name) { return is_inherited(name); });
};

std::vector<Problem> problems_of(const RecommendConfig& config, bool measured) {
  RecommendConfig copy = config;
  Problems problems(options_of(copy));
  // Callers check what depends on the model when it is known what the run begins with.
  const bool starts_fresh = !config.checkpoint.load && !config.checkpoint.auto_resume;
  check_rules(config, problems, [starts_fresh](const Option& option, const Rule& rule) {
    return starts_fresh || !is_about_model(option, rule);
  });
  if (starts_fresh) check_recommender(problems, config);
  check_tables(problems, config.data);
  check_length(problems, config.training);
  check_lr(config.lr, config.training.train_iters.value_or(0), problems);
  const ClickDataConfig& data = config.data;
  check_synthetic(problems, data, measured);
  if (data.valid_data && data.valid_samples > 0)
    problems.about("valid-data", "valid-samples")
        .wrong("--valid-data and --valid-samples both say what to evaluate on")
        .right("give one of them");
  const bool has_valid = data.valid_data || data.valid_samples > 0;
  if (!has_valid && config.training.eval_interval.value_or(0) > 0)
    problems.about("eval-interval", "valid-data", "valid-samples")
        .wrong("--eval-interval needs samples to evaluate on")
        .right("give --valid-data or --valid-samples, or --eval-interval 0");
  if (!has_valid && config.training.target_auc)
    problems.about("target-auc", "valid-data", "valid-samples")
        .wrong("--target-auc needs samples to evaluate on")
        .right("give --valid-data or --valid-samples");
  check_table_storage(config.placement, config.mesh, problems);
  check_checkpoint(config.checkpoint, problems);
  check_best(config.checkpoint, config.training.early_stop_patience,
             has_valid && config.training.eval_interval.value_or(0) > 0, problems);
  check_overlap(config.log, config.mesh, problems);
  return problems.take();
}

RecommendConfig filled(RecommendConfig config) {
  if (!config.training.embedding_lr) config.training.embedding_lr = config.lr.lr;
  return config;
}

// Options that apply to a single plan and not to a search.
void check_recommender_search(Problems& problems, const PlanRecommenderConfig& config) {
  if (!config.search) return;
  if (config.measure_steps > 0)
    problems.about("measure-steps", "search")
        .wrong("--measure-steps {} has no effect with --search", config.measure_steps)
        .right("measure one of the layouts that it finds");
  if (config.svg)
    problems.about("svg", "search")
        .wrong("--svg {} has no effect with --search", *config.svg)
        .right("draw one of the layouts that it finds");
}

// A plan reads no samples, so nothing is evaluated.
RecommendConfig without_data(RecommendConfig config) {
  config.data.valid_data.reset();
  config.data.valid_samples = 0;
  config.training.eval_interval.reset();
  config.training.target_auc.reset();
  config.training.early_stop_patience.reset();
  config.checkpoint.save_best = false;
  return config;
}

}  // namespace

std::vector<Problem> problems(const RecommendConfig& config) { return problems_of(config, false); }

std::vector<Problem> model_problems(const RecommendConfig& config) {
  RecommendConfig copy = config;
  Problems problems(options_of(copy));
  check_rules(config, problems, is_about_model);
  check_recommender(problems, config);
  return problems.take();
}

std::vector<Problem> problems(const PlanRecommenderConfig& config) {
  PlanRecommenderConfig copy = config;
  copy.run = without_data(std::move(copy.run));
  Problems own(options_of(copy));
  check_rules(copy, own, [](const Option& option, const Rule&) { return option.group == "Plan"; });
  check_recommender_search(own, config);
  std::vector<Problem> list = problems_of(copy.run, config.measure_steps > 0);
  // The options of `run` are in both tables.
  for (Problem& problem : own.take())
    if (std::find(list.begin(), list.end(), problem) == list.end()) list.push_back(std::move(problem));
  return list;
}

PlanRecommenderConfig resolve(PlanRecommenderConfig config) {
  throw_problems(problems(config));
  config.run = filled(without_data(std::move(config.run)));
  return config;
}

RecommendConfig resolve(RecommendConfig config) {
  throw_problems(problems(config));
  return filled(std::move(config));
}

}  // namespace trifold
