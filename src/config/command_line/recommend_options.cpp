// The options of `trifold recommend`, and the checks of their combinations.
#include <algorithm>

#include "config/command_line/option_tables.h"
#include "config/fields/option_groups.h"
#include "config/fields/problems.h"
#include "config/rules/validate.h"
#include "config/rules/validate_data.h"
#include "config/rules/validate_mesh.h"
#include "config/rules/validate_model.h"
#include "config/rules/validate_training.h"

namespace trifold {

RecommendConfig::RecommendConfig() {
  lr.lr = 0.1;
  lr.lr_decay_style = LrDecayStyle::Parabola;
}

namespace {

constexpr double kMostClicks = 1e15;

void add_data(OptionTable& table, ClickDataConfig& data) {
  table.group("Data");
  table.add("train-data", &data.train_data, "File or folder of training samples, or the word synthetic.")
      .files("PATH")
      .of_host()
      .of_execution();
  table.add("valid-data", &data.valid_data, "File or folder of evaluation samples.")
      .files("PATH")
      .absent("the last --valid-samples of the training data")
      .of_host()
      .of_execution();
  table
      .add("data-format", &data.data_format,
           "Format of both; auto infers it from the name and the first line. Ids are hexadecimal in tsv and "
           "csv-hex, decimal in csv.")
      .one_of({"auto", "synthetic", "tsv", "csv", "csv-hex", "mlperf-bin", "hugectr-raw",
               "hugectr-raw-counts", "split-binary", "clicks"});
  table
      .add("table-rows", &data.table_rows,
           "Rows of each embedding table, or one number for all. Must match data that record their rows; the "
           "word data takes them from there.")
      .takes("N-N-...")
      .absent("from the data; 1000 for synthetic clicks");
  table
      .add("table-max-ids", &data.table_max_ids,
           "Maximum number of ids per sample for each table, or one number for all.")
      .takes("N-N-...")
      .absent("1");
  table
      .add("dense-features", &data.dense_features,
           "Numeric features per sample; 0: none, and no bottom MLP. Must match data that record it.")
      .range(0, 1 << 20)
      .absent("from the data, otherwise 13");
  table
      .add("dense-transform", &data.dense_transform,
           "Transform of numeric features; must match data that are already transformed.")
      .one_of({"none", "log1p", "log3"})
      .absent("log1p; none for hugectr-raw, whose numbers are not counts");
  table.add("id-policy", &data.id_policy, "Treatment of ids that are out of range for their table.")
      .absent("error");
  table.add("synthetic-samples", &data.synthetic_samples, "Number of synthetic samples.")
      .range(1, kMostClicks);
  table
      .add("synthetic-zipf", &data.synthetic_zipf,
           "Exponent of the Zipf distribution of synthetic ids; 0: uniform.")
      .range(0, 10);
  table.add("synthetic-missing", &data.synthetic_missing, "Fraction of synthetic bags that are empty.")
      .fraction();
  table.add("synthetic-constant", &data.synthetic_constant,
            "Make all synthetic samples alike, so that no AUC exceeds 0.5.");
  table
      .add("valid-samples", &data.valid_samples,
           "Hold out this many samples at the end of the training data for evaluation.")
      .range(0, kMostClicks);
}

void add_model(OptionTable& table, DlrmConfig& model) {
  table.group("Model");
  table.add("embedding-dim", &model.embedding_dim, "Width of an embedding vector.").range(1, 1 << 16);
  table.add("bottom-mlp", &model.bottom_mlp, "Widths of the bottom MLP; the last is --embedding-dim.")
      .takes("N-N-...");
  table.add("top-mlp", &model.top_mlp, "Widths of the top MLP; the last is 1.").takes("N-N-...");
  table.add(
      "interaction", &model.interaction,
      "Feature interaction: pairwise dot products, concatenation, a cross network, or concatenation with "
      "the sum of the pairwise products added to the logit (fm: DeepFM).");
  table.add("interaction-self", &model.interaction_self,
            "dot: include the product of each vector with itself.");
  table.add("wide", &model.wide,
            "Add a first-order term to the logit: a weight for each id, kept behind its vector, and for each "
            "dense feature (the wide part of Wide & Deep and DeepFM).");
  table.add("cross-layers", &model.cross_layers, "Layers of the cross network.").range(1, 100);
  table.add("cross-rank", &model.cross_rank, "Rank of the matrices of the cross network.").range(1, 1 << 20);
  table.add("pooling", &model.pooling, "Pooling of a bag of ids: the sum or the mean of its vectors.");
  table.add("dropout", &model.dropout, "Dropout of the outputs of the MLPs' hidden layers.").fraction();
  table.add("loss", &model.loss,
            "Loss: binary cross entropy (bce), or squared error of the probability (mse).");
}

void add_training(OptionTable& table, RecommendConfig& config) {
  ClickTrainingConfig& training = config.training;
  table.group("Training");
  table.add("global-batch-size", &training.global_batch_size, "Samples per step over all ranks.")
      .range(1, 1 << 30);
  table.add("train-iters", &training.train_iters, "Steps to train.")
      .range(1, kMostClicks)
      .absent("--train-epochs counts");
  table.add("train-epochs", &training.train_epochs, "Passes over the training data.")
      .range(1, kMostClicks)
      .absent("1, if --train-iters is not given");
  add_exit(table, training.exit_interval, training.exit_duration_in_mins);
  add_lr(table, config.lr);
  table.change("lr").optional();
  table.change("lr-decay-iters").range(0, kMaxCount).absent("the steps of the run; no decay for parabola");
  table
      .add("embedding-lr", &training.embedding_lr,
           "Learning rate of the tables; it follows the same schedule as --lr.")
      .positive()
      .absent("--lr");
  table.group("Optimizer");
  table.add("optimizer", &training.optimizer, "Update rule of the MLPs.").one_of({"sgd", "adagrad", "adam"});
  table.add("embedding-optimizer", &training.embedding_optimizer,
            "Update rule of the embedding rows that a step uses.");
  table.add("eps", &training.eps, "adagrad, adam: added to the root in the denominator.").positive();
  table
      .add(
          "weight-decay", &training.weight_decay,
          "L2 penalty of the weights, not the biases, of the MLPs and the cross network, and with --wide of "
          "those of the dense features: times the weight, added to its gradient, or for adam, as AdamW does, "
          "to its step. Embedding rows have none.")
      .at_least(0);
  table
      .add("clip-grad", &training.clip_grad,
           "Clip the gradients of the MLPs, the cross network and, with --wide, the weights of the dense "
           "features to this global norm; 0: no clipping. Embedding rows are neither counted nor clipped.")
      .at_least(0);
  table.add(
      "bf16", &config.precision.bf16,
      "Weights and activations of the MLPs and the cross network in bf16; f32 master weights. Tables stay "
      "in f32.");
  add_tf32(table, config.precision);
  table.add("f64", &config.precision.f64, "Compute everything in double precision, for numerical checks.");
  table.add("seed", &config.seed, "Seed of initial weights, sample order and synthetic clicks.");
  table.group("Evaluation");
  table
      .add("eval-interval", &training.eval_interval,
           "Evaluate every N steps, and at the end; 0: only at the end.")
      .range(0, kMostClicks)
      .absent("only at the end, if there are evaluation samples")
      .of_execution();
  table.add("target-auc", &training.target_auc, "Stop when an evaluation reaches this AUC.")
      .range(0.5, 1)
      .absent("no target")
      .of_execution();
  add_early_stop(table, training.early_stop_patience);
}

}  // namespace

void add_tables(OptionTable& table, EmbeddingPlacementConfig& placement) {
  table
      .add("placement", &placement.placement,
           "Placement of tables on ranks: table (whole), row, column, replicated, a list of these with one "
           "for each table, or auto.")
      .takes("KIND,...")
      .suggest({"auto", "table", "row", "column", "replicated"})
      .of_execution();
  table.add("bf16-exchange", &placement.bf16_exchange, "Exchange embedding vectors between ranks in bf16.");
  table
      .add("memory-limit", &placement.memory_limit,
           "Memory of a rank, or of its device, in GiB; a run that needs more is rejected.")
      .positive()
      .absent("no limit")
      .of_execution();
}

namespace {

void add_placement(OptionTable& table, RecommendConfig& config) {
  table.group("Ranks and tables");
  add_ranks(table, config.mesh);
  add_host(table, config.mesh);
  add_zero_stage(table, config.zero).range(0, 2).help =
      "What ranks shard of the MLPs and the cross network: 0 nothing, 1 the optimizer state, 2 also "
      "gradients.";
  add_tables(table, config.placement);
}

void add_files(OptionTable& table, RecommendConfig& config) {
  add_saving(table, config.checkpoint);
  add_log(table, config.log);
  table.change("log-json").help = "Append one JSON object per report to this file.";
}

}  // namespace

OptionTable options_of(RecommendConfig& config) {
  OptionTable table;
  add_data(table, config.data);
  add_model(table, config.model);
  add_training(table, config);
  add_placement(table, config);
  add_files(table, config);
  return table;
}

OptionTable options_of(PlanRecommenderConfig& config) {
  OptionTable table = options_of(config.run);
  table.group("Plan");
  table
      .add("measure-steps", &config.measure_steps,
           "Measure this host's rates, train this many steps on synthetic clicks with --ranks thread ranks, "
           "and print forecast and measurement.")
      .range(0, 1'000'000);
  table.add("svg", &config.svg, "Draw the step of a rank to this file, with overlapping work.")
      .files("FILE.svg")
      .absent("none");
  table.add("json", &config.json, "Write the figures to this file.").files("FILE").absent("none");
  table.add("search", &config.search,
            "Find the number of ranks (at most --ranks), the placement and the exchange format with the "
            "shortest step within --memory-limit, instead of planning the given ones.");
  table.group("Costs of a rank");
  table.add("peak-gflops", &config.peak_gflops, "GFLOP/s of matrix products.").positive();
  table
      .add("memory-bandwidth", &config.memory_bandwidth,
           "GB/s (1e9 bytes) of reading table rows from memory.")
      .positive();
  table.add("link-bandwidth", &config.link_bandwidth, "GB/s (1e9 bytes) between ranks.").positive();
  table.add("link-latency", &config.link_latency, "Latency of a message in microseconds.").at_least(0);
  return table;
}

namespace {

void check_widths(Problems& problems, const DlrmConfig& model, bool has_dense) {
  if (has_dense && model.bottom_mlp.numbers().back() != model.embedding_dim)
    problems.about("bottom-mlp", "embedding-dim")
        .wrong(
            "--bottom-mlp {} does not end with --embedding-dim {}, so that its vector cannot meet those of "
            "the tables",
            model.bottom_mlp.text(), model.embedding_dim)
        .right("let it end with that number");
  if (model.top_mlp.numbers().back() != 1)
    problems.about("top-mlp")
        .wrong("--top-mlp {} does not end with 1, the logit of a click", model.top_mlp.text())
        .right("let it end with 1");
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
      {"synthetic-constant", !measured && data.synthetic_constant}};
  for (const auto& [option, changed] : options)
    if (changed)
      problems.about(option, "train-data")
          .wrong("--{} has no effect with --train-data {}, which is not synthetic", option, data.train_data)
          .right("leave one of them out");
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

  const ClickTrainingConfig& training = config.training;
  if (training.eps != ClickTrainingConfig().eps && training.optimizer == OptimizerKind::Sgd &&
      training.embedding_optimizer == TableOptimizer::Sgd)
    problems.about("eps", "optimizer", "embedding-optimizer")
        .wrong("--eps has no effect with --optimizer sgd and --embedding-optimizer sgd")
        .right("leave it out");
}

void check_length(Problems& problems, const ClickTrainingConfig& training) {
  if (training.train_iters && training.train_epochs)
    problems.about("train-iters", "train-epochs")
        .wrong("--train-iters and --train-epochs both say how long to train")
        .right("give one of them");
}

}  // namespace

namespace {

void check_recommender(Problems& problems, const RecommendConfig& config) {
  check_widths(problems, config.model, config.data.dense_features.value_or(1) > 0);
  check_unused(problems, config);
  check_precision(config.precision, problems);
  if (config.placement.bf16_exchange && config.precision.f64)
    problems.about("bf16-exchange", "f64")
        .wrong("--bf16-exchange has no place in a run with --f64")
        .right("leave one of them out");
}

std::vector<Problem> problems_of(const RecommendConfig& config, bool measured) {
  RecommendConfig copy = config;
  Problems problems(options_of(copy));
  // Callers check it when it is known what the run begins with.
  if (!config.checkpoint.load && !config.checkpoint.auto_resume) check_recommender(problems, config);
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
  check_tf32(config.precision, config.mesh, problems);
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
  check_recommender(problems, config);
  return problems.take();
}

std::vector<Problem> problems(const PlanRecommenderConfig& config) {
  PlanRecommenderConfig copy = config;
  copy.run = without_data(std::move(copy.run));
  Problems own(options_of(copy));
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
