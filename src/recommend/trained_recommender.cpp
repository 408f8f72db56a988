#include "recommend/trained_recommender.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/collective.h"
#include "checkpoint/reader.h"
#include "checkpoint/tensor_kind.h"
#include "clicks/click_files.h"
#include "clicks/click_format.h"
#include "clicks/click_transform.h"
#include "clicks/compare_clicks.h"
#include "config/commands/json.h"
#include "config/commands/validate.h"
#include "core/read_json.h"
#include "embedding/table_part.h"
#include "recommend/check_bags.h"
#include "recommend/click_record.h"
#include "recommend/dropped_negatives.h"
#include "recommend/planning/host_fit.h"
#include "recommend/recommender_setup.h"
#include "run/device.h"
#include "run/ranks.h"
#include "run/stop_poll.h"
#include "run/tensors_on_host.h"

namespace trifold {

namespace {

// The format of the data; text in an undetermined format is read like the training data.
std::string format_to_read(const TrainedRecommenderConfig& asked, const std::string& trained_on) {
  if (asked.data_format != "auto") return asked.data_format;
  const std::string found = find_click_format(asked.data);
  return found == "text" && is_text_format(trained_on) ? trained_on : found;
}

bool has_transform(const CheckpointReader& reader) {
  return JsonView(reader.meta().state, reader.directory().string()).has("clicks");
}

// The checkpoint's description of the samples that its model was trained on.
ClickSchema stored_schema(const CheckpointReader& reader) {
  const std::string name = reader.directory().string();
  const JsonView model(reader.meta().model, name);
  ClickSchema schema;
  model.at("tables").each([&](const JsonView& table) {
    schema.tables.push_back(
        {table.at("name").text(), table.at("rows").integer(1, ClickTable::kMaxRows), 1, {}});
    schema.tables.back().shares = table.text("shares", "");
  });
  schema.dense = static_cast<int>(model.at("dense").integer(0, 1 << 20));
  schema.labels = labels_in(reader.meta().model);
  if (schema.labels.size() == 1) bad_input("{}: its model has a list of one label", name);
  if (!has_transform(reader)) return schema;
  const JsonView record = JsonView(reader.meta().state, name).at("clicks");
  schema.dense_transform = record.text("dense_transform", "none");
  schema.weighted = record.flag("weighted", false);
  if (record.has("dropped_negatives")) {
    schema.dropped_negatives = record.at("dropped_negatives").number();
    if (!(schema.dropped_negatives >= 0 && schema.dropped_negatives < 1))
      bad_input("{}: state.clicks.dropped_negatives is {}, not a share from 0 to below 1", name,
                schema.dropped_negatives);
  }
  if (!record.has("mappings") || record.at("mappings").size() != schema.tables.size()) return schema;
  size_t table = 0;
  record.at("mappings").each([&](const JsonView& mapping) {
    schema.tables[table++].mapping = mapping.text();
  });
  return schema;
}

// The options of the checkpoint that decide predictions. Without dense features there is no bottom MLP to check.
void read_options_of(const CheckpointReader& reader, const ClickSchema& schema, RecommendConfig& config) {
  recommender_from_json(reader.meta().config, config);
  RecommendConfig checked = config;
  checked.data.dense_features = schema.dense;
  throw_problems(problems(checked));
}

// The folder of clicks that the model was trained on, if the values of a table were mapped to ids by preprocessing.
std::optional<std::string> trained_folder(const CheckpointReader& reader, const ClickSchema& schema) {
  const bool mapped = std::any_of(schema.tables.begin(), schema.tables.end(), [](const ClickTable& table) {
    return !table.mapping.empty() && table.mapping != mapping_of(IdPolicy::Modulo) &&
           table.mapping != mapping_of(IdPolicy::Clip) && table.mapping != kUnknownMapping;
  });
  const nlohmann::json& config = reader.meta().config;
  if (!mapped || !config.is_object()) return std::nullopt;
  for (const char* key : {"dictionaries_of", "train_data"})
    if (const auto found = config.find(key); found != config.end() && found->is_string()) {
      std::string folder = found->get<std::string>();
      std::error_code ignored;
      if (std::filesystem::exists(ClickFolder::manifest(folder), ignored)) return folder;
    }
  return std::nullopt;
}

// The share of malformed lines that an option of the training run allowed.
std::optional<double> trained_limit(const CheckpointReader& reader) {
  const nlohmann::json& config = reader.meta().config;
  const auto found = config.is_object() ? config.find("max_malformed") : config.end();
  if (found == config.end() || !found->is_number()) return std::nullopt;
  const double limit = found->get<double>();
  return limit >= 0 && limit <= 1 ? std::optional<double>(limit) : std::nullopt;
}

// The data are read like the training data of the model; folders define their own tables.
void describe_samples(ClickDataConfig& data, const TrainedRecommenderConfig& asked,
                      const CheckpointReader& reader) {
  data.train_data = asked.data;
  data.max_malformed = asked.max_malformed ? asked.max_malformed : trained_limit(reader);
  ClickDataConfig as_asked = data;
  as_asked.data_format = asked.data_format;
  const bool can = is_to_preprocess(as_asked, asked.data);
  if (asked.dictionaries_of && !can)
    bad_input(
        "--dictionaries-of {} has no effect on {}, which is neither text nor a Parquet file nor an array",
        *asked.dictionaries_of, asked.data);
  data.dictionaries_of = asked.dictionaries_of;
  if (!data.dictionaries_of && can) data.dictionaries_of = trained_folder(reader, stored_schema(reader));
  data.data_format = data.dictionaries_of ? asked.data_format : format_to_read(asked, data.data_format);
  const bool is_folder =
      data.dictionaries_of || data.data_format == kPreprocessed || data.data_format == "split-binary";
  if (asked.id_policy || data.dictionaries_of || data.data_format == kPreprocessed)
    data.id_policy = asked.id_policy;
  const ClickSchema schema = stored_schema(reader);
  std::vector<int64_t> rows;
  for (const ClickTable& table : schema.tables) rows.push_back(table.rows);
  if (is_folder) {
    data.table_max_ids.reset();
    if (schema.keyed()) data.table_rows = TableRows{NumberList(std::move(rows))};
    return;
  }
  if (!rows.empty()) data.table_rows = TableRows{NumberList(std::move(rows))};
  data.dense_features = schema.dense;
  if (has_transform(reader)) data.dense_transform = value_named<DenseTransform>(schema.dense_transform);
}

// BadInput unless the checkpoint has the model's weights in their shapes. Checked before memory is allocated, because a
// damaged checkpoint may claim a model of any size.
void check_weights(const CheckpointReader& reader, const RecommenderSetup& setup) {
  const DlrmShape& shape = setup.model;
  const std::string name = reader.directory().string();
  const auto expect = [&](std::string_view kind, const std::string& weight, const Shape& wanted) {
    const std::string tensor = fmt::format("{}/{}", kind, weight);
    const TensorInfo* stored = reader.find(tensor);
    if (stored == nullptr) bad_input("{}: its model needs a tensor {}, which it does not have", name, tensor);
    if (stored->global != wanted)
      bad_input("{}: its tensor {} is {}, its model needs {}", name, tensor, to_string(stored->global),
                to_string(wanted));
  };
  if (shape.layers() > std::ssize(reader.tensors()))
    bad_input("{}: its model has {} layers, but it has {} tensors", name, shape.layers(),
              reader.tensors().size());
  for (const EmbeddingTable& table : embedding_tables(setup.schema, shape.width, shape.wide))
    expect(kWeightKind, weight_name(table), {table.rows, table.width});
  for (const ClickTable& table : setup.schema.tables)
    if (table.keyed())
      expect(kKeysKind, weight_name({.name = table.name}), {table.rows - KeyTable::kFirstRow, 2});
  for (const NormedLayer& layer : shape.normed())
    for (const char* kind : kNormKinds) expect(kind, layer.name, {layer.columns});
  const Mesh planned({{Axis::Dp, 1}}, {});
  const Model model = make_dlrm(shape, planned, 0);
  for (const ParamSpec& param : model.params.specs())
    expect(kWeightKind, param.shard.name, param.shard.global);
}

RecommenderSetup setup_of(const TrainedRecommender& job, int ranks) {
  RecommenderSetup setup = recommender_setup(job.config, job.schema, ranks);
  setup.training = false;
  setup.logit_offset = job.logit_offset;
  return setup;
}

void load(Communicator& world, Recommender& model, const std::string& directory) {
  gather_texts(world, "loading " + directory, [&]() -> std::string {
    std::vector<NamedTensor> weights = model.checkpoint_tensors(true);
    std::erase_if(weights, [&](const NamedTensor& tensor) { return !is_of_model(tensor.spec.name); });
    TensorsOnHost host(std::move(weights), model.ops(), model.compute());
    CheckpointReader reader(directory);
    reader.load(host.tensors());
    host.put_back();
    model.check_keys({}, updates_before(reader) + reader.meta().step);
    return {};
  });
  model.loaded();
}

}  // namespace

bool is_recommender(const CheckpointReader& reader) {
  const nlohmann::json& model = reader.meta().model;
  return model.is_object() && model.contains("kind");
}

int64_t updates_before(const CheckpointReader& reader) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const JsonView state(reader.meta().state, reader.directory().string());
  return state.has(kUpdatesBefore) ? state.at(kUpdatesBefore).integer(0, kMost) : 0;
}

TrainedRecommender open_recommender(const TrainedRecommenderConfig& asked, const PredictionUse& use) {
  const CheckpointReader reader(asked.load);
  const CheckpointMeta& meta = reader.meta();
  TrainedRecommender job;
  job.directory = reader.directory().string();
  job.step = meta.step;
  if (!is_recommender(reader))
    bad_input(
        "{} is a checkpoint of a language model, not of a recommender: trifold evaluate --data-path measures "
        "it, and trifold generate samples from it",
        job.directory);
  RecommendConfig& config = job.config;
  try {
    read_options_of(reader, stored_schema(reader), config);
  } catch (Error& error) {
    if (!std::string_view(error.what()).starts_with(job.directory)) error.add_context(job.directory);
    throw;
  }
  config.model.no_correct_negatives = config.model.no_correct_negatives || asked.no_correct_negatives;
  job.starts = starts_of(reader);
  job.logit_offset = odds_correction(stored_schema(reader), config.model);
  describe_samples(config.data, asked, reader);
  config.data.unlabelled = use.unlabelled;
  config.training.global_batch_size = asked.global_batch_size;
  config.placement = asked.placement;
  config.mesh = asked.mesh;
  check_device(config.mesh);
  job.data = open_clicks_to_score(config.data, use);
  job.schema = job.samples().schema();
  ClickSchema& schema = job.schema;
  if (!schema.labeled) schema.labels = labels_in(meta.model);
  compare_with_record(reader, asked.data, schema, ClickUse::Predict);
  const ClickSchema recorded = recorded_schema(reader, schema);
  for (size_t t = 0; t < std::min(schema.tables.size(), recorded.tables.size()); ++t)
    schema.tables[t].rows = recorded.tables[t].rows;
  compare_models(meta.model, recommender_model(config, schema));
  check_bags(job.samples(), (asked.global_batch_size + asked.mesh.ranks - 1) / asked.mesh.ranks);
  RecommenderSetup setup = recommender_setup(config, schema, asked.mesh.ranks);
  check_weights(reader, setup);
  setup.training = false;
  check_table_folder(setup, asked.mesh.ranks);
  check_host_fits(config, setup);
  return job;
}

StoredRecommender stored_recommender(const CheckpointReader& reader) {
  const std::string name = reader.directory().string();
  StoredRecommender stored;
  try {
    ClickSchema schema = stored_schema(reader);
    check_schema(schema);
    read_options_of(reader, schema, stored.config);
    if (!has_transform(reader))
      for (ClickTable& table : schema.tables)
        table.mapping = mapping_of(stored.config.data.id_policy.value_or(IdPolicy::Error));
    stored.setup = recommender_setup(stored.config, schema, 1);
    stored.setup.logit_offset = odds_correction(schema, stored.config.model);
    const AppliedTransform transform = AppliedTransform::parse(schema.dense_transform);
    if (schema.dense == 0 || has_transform(reader)) stored.transform = transform;
  } catch (Error& error) {
    if (!std::string_view(error.what()).starts_with(name)) error.add_context(name);
    throw;
  }
  check_weights(reader, stored.setup);
  return stored;
}

void add_terms(RunTerms& terms, const TrainedRecommender& job) {
  terms.add("--data", fingerprint_of_paths({{job.config.data.train_data}}));
  terms.add_checkpoint(job.directory);
}

bool score_feed(Communicator& world, Recommender& model, const ClickFeed& feed,
                const std::atomic<int>& signal, FunctionRef<void(const Recommender::Scored& scored)> take) {
  const int64_t steps = feed.batches_per_epoch();
  StopPoll poll(world, model.compute(), &signal);
  for (int64_t step = 0; step < steps; ++step) {
    if (poll.stops()) return false;
    model.fetch(feed, step, false);
    take(model.score());
  }
  return true;
}

bool predict_clicks(Communicator& world, const TrainedRecommender& job, const std::atomic<int>& signal,
                    TakeScores take, FinishScores finish) {
  bool done = false;
  abort_on_error(world, [&] {
    const ClickFeed feed(job.samples(), std::nullopt, job.config.training.global_batch_size);
    Recommender model(world, setup_of(job, world.size()));
    load(world, model, job.directory);
    const OtherRows means(world, model, job.starts);
    Stream host = model.compute().host();
    UnknownValues unknown(job.schema);
    done = score_feed(world, model, feed, signal, [&](const Recommender::Scored& scored) {
      unknown.add(*scored.batch);
      take(scored, host);
    });
    if (done) finish(host, unknown.finish(world, host));
  });
  return done;
}

}  // namespace trifold
