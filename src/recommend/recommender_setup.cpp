#include "recommend/recommender_setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "recommend/planning/place_tables.h"

namespace trifold {

namespace {

SparseKind sparse_kind(TableOptimizer optimizer) {
  switch (optimizer) {
    case TableOptimizer::Sgd:
      return SparseKind::Sgd;
    case TableOptimizer::Adagrad:
      return SparseKind::Adagrad;
    case TableOptimizer::RowwiseAdagrad:
      return SparseKind::RowwiseAdagrad;
    case TableOptimizer::Adam:
      return SparseKind::Adam;
    case TableOptimizer::Ftrl:
      return SparseKind::Ftrl;
  }
  fail("there is no update rule of rows for optimizer {}", static_cast<int>(optimizer));
}

// BadInput for options of several labels where the data have one, and for weights of other labels.
void check_labels_of(const RecommendConfig& config, const ClickSchema& schema) {
  const DlrmConfig& model = config.model;
  const DlrmConfig plain;
  const auto& weights = config.training.label_weights;
  if (weights && std::ssize(weights->weights) != schema.label_count())
    bad_input(
        "--label-weights {} has {} weights, the data have {}: give one for each, in this order",
        weights->text(), weights->weights.size(),
        schema.labels.empty() ? "one label" : fmt::format("the labels {}", fmt::join(schema.labels, ", ")));
  if (!schema.labels.empty()) {
    if (model.batch_norm)
      bad_input("--batch-norm is for models of one label; the samples have {}: leave it out",
                schema.labels.size());
    if (model.multi_task == MultiTask::Mmoe && model.top_mlp.numbers().size() < 2)
      bad_input(
          "--multi-task mmoe needs hidden layers for its experts, and --top-mlp {} has none: "
          "give it two widths or more",
          model.top_mlp.text());
    return;
  }
  const std::pair<const char*, bool> options[] = {
      {"tower-mlp", model.tower_mlp.numbers() != plain.tower_mlp.numbers()},
      {"multi-task", model.multi_task != plain.multi_task},
      {"label-weights", weights.has_value()}};
  for (const auto& [option, given] : options)
    if (given)
      bad_input("--{} has an effect only on samples with several labels; these have one: leave it out",
                option);
}

// BadInput if the bottom MLP that the dense features need does not end in the width of the tables' vectors.
void check_bottom(const DlrmConfig& model, const ClickSchema& schema) {
  if (schema.dense > 0 && model.bottom_mlp.numbers().back() != model.embedding_dim)
    bad_input(
        "--bottom-mlp {} does not end with --embedding-dim {}, so its vector cannot interact with those of the "
        "tables: end it with that number",
        model.bottom_mlp.text(), model.embedding_dim);
}

// BadInput for options of keys where the data have none.
void check_keys(const RecommendConfig& config, const ClickSchema& schema) {
  const DlrmConfig& model = config.model;
  const DlrmConfig plain;
  if (schema.keyed()) return;
  const std::pair<const char*, bool> options[] = {
      {"key-admission", model.key_admission != plain.key_admission},
      {"key-eviction", model.key_eviction != plain.key_eviction}};
  for (const auto& [option, given] : options)
    if (given)
      bad_input("--{} has an effect only on data of preprocess --ids keys; these have no keys: leave it out",
                option);
}

// The place of a column of ids by its name. BadInput if there is none.
int64_t column_of(const ClickSchema& schema, const std::string& name, const std::string& option) {
  std::vector<std::string> names;
  for (const ClickTable& table : schema.tables) {
    if (table.name == name) return std::ssize(names);
    names.push_back(table.name);
  }
  bad_input("--attention {}: the data have no table {}; they have {}", option, name, fmt::join(names, ", "));
}

std::vector<AttendedBag> attended_bags(const DlrmConfig& config, const ClickSchema& schema) {
  std::vector<AttendedBag> bags;
  if (!config.attention) return bags;
  const std::string option = config.attention->text();
  for (const auto& [bag, candidate] : config.attention->pairs)
    bags.push_back({column_of(schema, bag, option), column_of(schema, candidate, option), bag});
  for (const AttendedBag& bag : bags)
    for (const AttendedBag& other : bags)
      if (bag.candidate == other.column)
        bad_input(
            "--attention {}: the vector of {} is the candidate of {}, so it cannot itself be pooled by "
            "attention: leave "
            "{} out, or give {} another candidate",
            option, other.name, bag.name, other.name, bag.name);
  return bags;
}

DlrmShape model_shape(const DlrmConfig& config, const ClickSchema& schema) {
  DlrmShape shape;
  shape.dense = schema.dense;
  shape.tables = schema.table_count();
  shape.width = config.embedding_dim;
  shape.bottom = config.bottom_mlp.numbers();
  shape.top = config.top_mlp.numbers();
  shape.interaction = config.interaction;
  shape.self = config.interaction_self;
  shape.wide = config.wide;
  shape.dropout = config.dropout;
  shape.cross_layers = config.cross_layers;
  shape.cross_rank = config.cross_rank;
  shape.labels = schema.labels;
  if (!shape.labels.empty()) {
    shape.tower = config.tower_mlp.numbers();
    shape.experts = config.multi_task == MultiTask::Mmoe ? config.mmoe_experts : 0;
  }
  shape.batch_norm = config.batch_norm;
  shape.attended = attended_bags(config, schema);
  if (!shape.attended.empty()) shape.attention = config.attention_mlp.numbers();
  shape.loss = config.loss == ClickLossKind::Mse ? ClickLoss::Squared : ClickLoss::Logistic;
  return shape;
}

}  // namespace

nlohmann::json recommender_model(const RecommendConfig& config, const ClickSchema& schema) {
  nlohmann::json tables = nlohmann::json::array();
  for (const ClickTable& table : schema.tables) {
    tables.push_back({{"name", table.name}, {"rows", table.rows}});
    if (!table.shares.empty()) tables.back()["shares"] = table.shares;
  }
  const DlrmConfig& model = config.model;
  const bool crosses = model.interaction == InteractionKind::Cross;
  nlohmann::json json = {
      {"kind", "dlrm"},
      {"dense", schema.dense},
      {"embedding_dim", model.embedding_dim},
      {"bottom_mlp", schema.dense > 0 ? model.bottom_mlp.numbers() : std::vector<int64_t>{}},
      {"top_mlp", model.top_mlp.numbers()},
      {"interaction", name_of(model.interaction)},
      {"interaction_self", model.interaction_self},
      {"cross_layers", crosses ? model.cross_layers : 0},
      {"cross_rank", crosses ? model.cross_rank : 0},
      {"pooling", name_of(model.pooling)},
      {"optimizer", name_of(config.training.optimizer)},
      {"embedding_optimizer", name_of(config.training.embedding_optimizer)},
      {"f64", config.precision.f64},
      {"tables", tables}};
  if (model.wide) json["wide"] = true;  // checkpoints are older than it
  if (model.attention) {
    json["attention"] = model.attention->text();
    json["attention_mlp"] = model.attention_mlp.numbers();
  }
  if (model.batch_norm) json["batch_norm"] = true;
  if (schema.keyed()) {
    json["key_admission"] = model.key_admission;
    json["key_eviction"] = name_of(model.key_eviction);
  }
  if (!schema.labels.empty()) {
    json["labels"] = schema.labels;
    json["tower_mlp"] = model.tower_mlp.numbers();
    json["experts"] = model.multi_task == MultiTask::Mmoe ? model.mmoe_experts : 0;
  }
  return json;
}

TableStorage storage_of(const EmbeddingPlacementConfig& placement, ComputeDevice device) {
  constexpr double kGibibyte = 1 << 30;
  const double cache = placement.table_cache.value_or(EmbeddingPlacementConfig::kTableCache);
  TableStorage storage;
  storage.folder = placement.table_storage.value_or("");
  storage.cache = static_cast<size_t>(std::min(cache * kGibibyte, 1e18));
  storage.on_host = !placement.table_storage && placement.table_cache;
  storage.on_device = device == ComputeDevice::Cuda;
  return storage;
}

void check_table_folder(const RecommenderSetup& setup, int ranks) {
  if (!setup.storage.in_files()) return;
  size_t most = 0;
  for (const RecommenderMemory& rank :
       memory_of_ranks(setup, placement_of(setup, ranks), setup.storage.on_device))
    most = std::max(most, rank.files);
  check_memory_folder(setup.storage.place(), most);
}

PlacementInput placement_input(const RecommendConfig& config, const ClickSchema& schema, int ranks) {
  const DType dtype = config.precision.f64 ? DType::F64 : DType::F32;
  PlacementInput input;
  input.ranks = ranks;
  input.global_batch = config.training.global_batch_size;
  input.element_bytes = static_cast<int>(size_of(dtype));
  input.exchange_bytes = config.placement.bf16_exchange ? 2 : input.element_bytes;
  input.state_bytes_of_row = static_cast<int64_t>(
      state_bytes_of_row(sparse_kind(config.training.embedding_optimizer),
                         config.model.embedding_dim + (config.model.wide ? schema.label_count() : 0), dtype));
  if (config.placement.memory_limit)
    input.memory_of_rank = static_cast<int64_t>(*config.placement.memory_limit * (1 << 30));
  return input;
}

RecommenderSetup recommender_setup(const RecommendConfig& config, const ClickSchema& schema, int ranks) {
  const ClickTrainingConfig& training = config.training;
  check_labels_of(config, schema);
  check_keys(config, schema);
  check_bottom(config.model, schema);
  RecommenderSetup setup;
  setup.model = model_shape(config.model, schema);
  const bool is_fm = setup.model.interaction == InteractionKind::Fm;
  if (setup.model.interaction_width() == 0 || (is_fm && setup.model.pairs() == 0))
    bad_input(
        "the data have no dense features and one table, so its vector has none to interact with: give "
        "--interaction cat{}",
        is_fm ? "" : ", or --interaction-self");
  setup.schema = schema;
  setup.place_vectors();
  if (training.label_weights)
    setup.schema.label_weights.assign(training.label_weights->weights.begin(),
                                      training.label_weights->weights.end());
  setup.global_batch = training.global_batch_size;
  setup.dtype = config.precision.f64 ? DType::F64 : DType::F32;
  setup.bf16 = config.precision.bf16;
  setup.check_overlap = config.log.check_overlap;
  setup.check_replicas = config.checkpoint.check_replicas.value_or(0);
  setup.zero_stage = config.zero.zero_stage;
  setup.dense_optimizer.optimizer = training.optimizer;
  setup.dense_optimizer.weight_decay = training.weight_decay;
  setup.dense_optimizer.sgd_momentum = 0;
  setup.dense_optimizer.adagrad_eps = setup.dense_optimizer.adam_eps = training.eps;
  setup.clip_grad = training.clip_grad;
  setup.sparse.kind = sparse_kind(training.embedding_optimizer);
  setup.sparse.eps = training.eps;
  setup.sparse.weight_decay = training.embedding_weight_decay;
  setup.sparse.alpha = training.ftrl_alpha;
  setup.sparse.beta = training.ftrl_beta;
  setup.sparse.l1 = training.ftrl_l1;
  setup.sparse.l2 = training.ftrl_l2;
  setup.mean = config.model.pooling == Pooling::Mean;
  setup.bf16_exchange = config.placement.bf16_exchange;
  setup.seed = config.seed;
  setup.init_range = config.model.embedding_init_range;
  setup.threads = config.mesh.threads_per_rank;
  setup.device = config.mesh.device;
  setup.tf32 = config.precision.tf32;
  setup.keys = {config.model.key_admission, config.model.key_eviction};
  setup.storage = storage_of(config.placement, setup.device);
  place_tables(setup, config, ranks);
  return setup;
}

}  // namespace trifold
