#include "train/click_data.h"

#include <algorithm>
#include <filesystem>

#include "data/click_columns.h"
#include "data/click_format.h"
#include "data/click_synthetic.h"
#include "data/click_text_source.h"

namespace trifold {

namespace {

std::string format_of(const ClickDataConfig& config) {
  if (config.data_format != "auto") return config.data_format;
  const std::string& path = config.train_data;
  if (path == "synthetic") return "synthetic";
  if (std::filesystem::exists(ClickFolder::manifest(path))) return "clicks";
  if (std::filesystem::is_directory(path)) return "split-binary";
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".csv") return "csv";
  if (extension == ".bin") return "mlperf-bin";
  if (extension == ".tsv" || extension == ".txt") return "tsv";
  bad_input("--train-data {}: its name does not say what it is; give --data-format", path);
}

std::vector<ClickTable> tables_of(const ClickDataConfig& config) {
  const std::vector<int64_t> rows = *numbers_of(config.table_rows);
  std::vector<int64_t> most = *numbers_of(config.table_max_ids.value_or("1"));
  if (most.size() == 1) most.resize(rows.size(), most[0]);
  if (most.size() != rows.size())
    bad_input("--table-max-ids has {} numbers, --table-rows {}", most.size(), rows.size());
  std::vector<ClickTable> tables;
  for (size_t t = 0; t < rows.size(); ++t)
    tables.push_back({fmt::format("C{}", t + 1), rows[t], static_cast<int>(most[t])});
  return tables;
}

}  // namespace

ClickSchema schema_of_options(const ClickDataConfig& config) {
  ClickSchema schema;
  schema.dense = static_cast<int>(config.dense_features);
  schema.tables = tables_of(config);
  schema.dense_transform = config.dense_transform;
  return schema;
}

namespace {

std::unique_ptr<ClickSource> open_source(const ClickDataConfig& config, const std::string& format,
                                         const std::string& path, const std::string& part, uint64_t seed,
                                         ClickData& data) {
  const ClickRules rules{parse_dense_transform(config.dense_transform), parse_id_policy(config.id_policy)};
  if (format == "synthetic") {
    SyntheticClickSpec spec;
    spec.dense = static_cast<int>(config.dense_features);
    spec.tables = tables_of(config);
    spec.samples = config.synthetic_samples;
    spec.seed = seed;
    spec.zipf = config.synthetic_zipf;
    spec.missing = config.synthetic_missing;
    spec.constant = config.synthetic_constant;
    auto clicks = std::make_unique<SyntheticClicks>(spec);
    data.best_auc = clicks->optimum().auc;
    return clicks;
  }
  if (format == "tsv" || format == "csv") {
    auto clicks = std::make_unique<TextClicks>(path, *numbers_of(config.table_rows), rules);
    if (const std::string text = clicks->report().text(); !text.empty()) data.notes.push_back(text);
    return clicks;
  }
  if (format == "clicks") return open_click_folder(path);
  if (format == "split-binary") {
    const SplitBinary split = read_feature_spec(path, part);
    return std::make_unique<ColumnClicks>(split.files, split.schema, rules);
  }
  const RecordLayout layout = format == "mlperf-bin"    ? kMlperfBin
                              : format == "hugectr-raw" ? kHugeCtrRaw
                                                        : kHugeCtrRawCounts;
  return std::make_unique<RecordClicks>(path, schema_of_options(config), layout, rules);
}

}  // namespace

ClickData open_clicks(const ClickDataConfig& config, uint64_t seed) {
  ClickData data;
  const std::string format = format_of(config);
  data.owned.push_back(open_source(config, format, config.train_data, "train", seed, data));
  data.train = data.owned.back().get();
  if (config.valid_data) {
    data.owned.push_back(open_source(config, format, *config.valid_data, "test", seed, data));
    data.valid = data.owned.back().get();
    if (data.valid->schema().tables.size() != data.schema().tables.size() ||
        data.valid->schema().dense != data.schema().dense)
      bad_input("--valid-data {} has {} tables and {} numbers a sample, --train-data {} and {}",
                *config.valid_data, data.valid->schema().tables.size(), data.valid->schema().dense,
                data.schema().tables.size(), data.schema().dense);
  } else if (config.valid_samples > 0) {
    const ClickSource& whole = *data.train;
    if (config.valid_samples >= whole.samples())
      bad_input("--valid-samples {} leaves nothing of the {} samples to train on", config.valid_samples,
                whole.samples());
    const int64_t cut = whole.samples() - config.valid_samples;
    data.owned.push_back(std::make_unique<ClickSlice>(whole, 0, cut));
    data.train = data.owned.back().get();
    data.owned.push_back(std::make_unique<ClickSlice>(whole, cut, whole.samples()));
    data.valid = data.owned.back().get();
  }
  return data;
}

ClickFeed::ClickFeed(const ClickSource& source, std::optional<uint64_t> seed, int64_t global_batch)
    : source_(source), order_(source.samples(), seed), global_(global_batch) {}

int64_t ClickFeed::real_samples(int64_t step) const {
  const int64_t first = step % batches_per_epoch() * global_;
  return std::min(global_, source_.samples() - first);
}

void ClickFeed::read(int64_t step, int rank, int64_t share, ClickBatchBuffer& out) const {
  const int64_t epoch = step / batches_per_epoch();
  const int64_t first = step % batches_per_epoch() * global_ + rank * share;
  const int64_t real = std::clamp<int64_t>(real_samples(step) - rank * share, 0, share);
  std::vector<int64_t> positions(static_cast<size_t>(real));
  if (real > 0) order_.positions(epoch, first, positions);
  out.begin(first, share, real);
  source_.fill(positions, out);
  out.finish();
}

}  // namespace trifold
