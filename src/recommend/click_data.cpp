#include "recommend/click_data.h"

#include <algorithm>
#include <filesystem>

#include "clicks/click_files.h"
#include "clicks/click_format.h"
#include "clicks/compare_clicks.h"
#include "clicks/synthetic/click_synthetic.h"
#include "preprocess/click_scratch.h"

namespace trifold {

namespace {

constexpr const char* kSynthetic = "synthetic";

std::string format_of(const ClickDataConfig& config, const std::string& path) {
  if (config.dictionaries_of && is_to_preprocess(config, path)) return kPreprocessed;
  if (config.data_format != "auto") return config.data_format;
  return path == kSynthetic ? kSynthetic : find_click_format(path);
}

// Empty if the data define them.
std::vector<int64_t> given_rows(const ClickDataConfig& config) {
  if (!config.table_rows || !config.table_rows->list) return {};
  return config.table_rows->list->numbers();
}

ClickFileOptions options_for(const ClickDataConfig& config, const std::string& format) {
  ClickFileOptions options;
  options.format = format;
  options.table_rows = given_rows(config);
  if (config.table_max_ids) options.table_ids = config.table_max_ids->numbers();
  options.dense = config.dense_features;
  options.dense_transform = config.dense_transform;
  options.id_policy = config.id_policy;
  options.max_malformed = config.max_malformed;
  return options;
}

std::vector<ClickTable> tables_of(const ClickDataConfig& config) {
  std::vector<int64_t> rows = given_rows(config);
  if (rows.empty()) rows = {1000};
  std::vector<int64_t> most = config.table_max_ids.value_or(NumberList{1}).numbers();
  if (most.size() == 1) most.resize(rows.size(), most[0]);
  if (most.size() != rows.size())
    bad_input("--table-max-ids has {} values, but --table-rows has {}", most.size(), rows.size());
  std::vector<ClickTable> tables;
  for (size_t t = 0; t < rows.size(); ++t)
    tables.push_back({fmt::format("C{}", t + 1), rows[t], static_cast<int>(most[t])});
  return tables;
}

}  // namespace

bool is_to_preprocess(const ClickDataConfig& config, const std::string& path) {
  if (path == kSynthetic) return false;
  return (config.data_format == "auto" || is_text_format(config.data_format)) && can_preprocess(path);
}

ClickSchema ClickData::schema() const {
  ClickSchema schema = train->schema();
  if (valid == nullptr) return schema;
  schema.sample_weights = schema.sample_weights || valid->schema().sample_weights;
  for (int t = 0; t < schema.table_count(); ++t) {
    ClickTable& table = schema.tables[static_cast<size_t>(t)];
    table.max_ids = std::max(table.max_ids, valid->schema().table(t).max_ids);
  }
  return schema;
}

bool has_keys(const ClickDataConfig& config) {
  std::error_code ignored;
  const std::string& folder = config.train_data;
  if ((config.data_format != "auto" && config.data_format != "clicks") ||
      !std::filesystem::exists(ClickFolder::manifest(folder), ignored))
    return false;
  const ClickFolder clicks = read_click_folder(folder);
  return std::any_of(clicks.tables.begin(), clicks.tables.end(),
                     [](const ClickFolder::Table& table) { return table.keys; });
}

ClickSchema schema_of_options(const ClickDataConfig& config) {
  ClickSchema schema;
  schema.dense = static_cast<int>(config.dense_features.value_or(13));
  schema.tables = tables_of(config);
  schema.dense_transform = name_of(config.dense_transform.value_or(DenseTransform::Log1p));
  schema.labels = SyntheticClicks::label_names(config.synthetic_labels);
  return schema;
}

namespace {

std::unique_ptr<ClickSource> make_synthetic(const ClickDataConfig& config, uint64_t seed, ClickData& data) {
  if (const DenseTransform transform = config.dense_transform.value_or(DenseTransform::Log1p);
      transform != DenseTransform::Log1p && transform != DenseTransform::None)
    bad_input(
        "--dense-transform {} has no effect on synthetic clicks, whose dense features are logarithms already",
        name_of(transform));
  if (config.id_policy.value_or(IdPolicy::Error) != IdPolicy::Error)
    bad_input("--id-policy {} has no effect on synthetic clicks, whose ids are always within their tables",
              name_of(*config.id_policy));
  SyntheticClickSpec spec;
  spec.dense = static_cast<int>(config.dense_features.value_or(13));
  spec.tables = tables_of(config);
  spec.samples = config.synthetic_samples;
  spec.seed = seed;
  spec.zipf = config.synthetic_zipf;
  spec.missing = config.synthetic_missing;
  spec.constant = config.synthetic_constant;
  spec.labels = config.synthetic_labels;
  auto clicks = std::make_unique<SyntheticClicks>(spec);
  data.best_auc = clicks->optimum().auc;
  return clicks;
}

// Adds what was found at `path` to the sources and the notes of `data`.
const ClickSource* take(std::unique_ptr<ClickSource> source, const TextReport& report, Unlabelled unlabelled,
                        ClickData& data) {
  for (const std::string& text : {report.files_text(), report.line(), report.unlabelled_text(unlabelled)})
    if (!text.empty()) data.notes.push_back(text);
  data.left_out = report.left_out;
  data.owned.push_back(std::move(source));
  return data.owned.back().get();
}

// `options`: how to read a file of this format.
const ClickSource* open_file(const ClickDataConfig& config, const std::string& path, ClickFileOptions options,
                             ClickData& data) {
  if (config.dictionaries_of && is_to_preprocess(config, path)) {
    if (options.id_policy.value_or(IdPolicy::Error) != IdPolicy::Error)
      bad_input("{}: --id-policy {} has no effect on ids that preprocessing maps into their tables", path,
                name_of(*options.id_policy));
    ClickFileOptions to_read = options;
    to_read.format = config.data_format;
    PreprocessedClicks made = preprocess_as(path, *config.dictionaries_of, to_read);
    check_agreement(path, options, made.source->schema());
    return take(std::move(made.source), made.report, options.unlabelled, data);
  }
  OpenClicks open = open_clicks(path, options);
  return take(std::move(open.source), open.report, options.unlabelled, data);
}

// The samples of `source` that have a label.
const ClickSource* labelled(const ClickSource* source, const std::string& path, ClickData& data) {
  const std::vector<int64_t> without = source->unlabelled();
  if (without.empty()) return source;
  if (std::ssize(without) == source->samples()) bad_input("{}: none of its samples has a label", path);
  data.notes.push_back(fmt::format("{} of {} samples of {} have no label and are left out", without.size(),
                                   source->samples(), path));
  data.owned.push_back(std::make_unique<ClickSelection>(labelled_samples(*source, without)));
  return data.owned.back().get();
}

const ClickSource* open_to_train(const ClickDataConfig& config, const std::string& path,
                                 const std::string& format, const std::string& part, ClickData& data) {
  ClickFileOptions options = options_for(config, format);
  options.part = part;
  options.unlabelled = config.unlabelled;
  return labelled(open_file(config, path, std::move(options), data), path, data);
}

void open_valid(const ClickDataConfig& given, const std::string& format, ClickData& data) {
  ClickDataConfig config = given;
  const std::string& path = *config.valid_data;
  if (!config.dictionaries_of && format == kPreprocessed && is_to_preprocess(config, path))
    config.dictionaries_of = config.train_data;
  const std::string own = format_of(config, path);
  if (format == kSynthetic || own == kSynthetic)
    bad_input(
        "--valid-data {}: synthetic clicks are evaluated on their own last samples: give --valid-samples",
        path);
  if (own != format && !(is_text_format(own) && is_text_format(format)))
    bad_input(
        "--valid-data {} is of the format {}, --train-data {} is {}: both must have been made the same way",
        path, own, config.train_data, format);
  data.valid = open_to_train(config, path, own, "test", data);
  const std::vector<std::string> differences =
      click_differences({config.train_data, data.train->schema()}, {path, data.valid->schema()});
  if (differences.empty()) return;
  bad_input("--valid-data {} is encoded differently from --train-data {}:\n  {}{}", path, config.train_data,
            fmt::join(differences, "\n  "),
            format == kPreprocessed
                ? fmt::format("\nPreprocess it with --dictionaries-of {}", config.train_data)
                : "");
}

}  // namespace

ClickData open_clicks(const ClickDataConfig& config, uint64_t seed) {
  ClickData data;
  if (config.dictionaries_of && !is_to_preprocess(config, config.train_data) &&
      !(config.valid_data && is_to_preprocess(config, *config.valid_data)))
    bad_input("--dictionaries-of {} has no effect: no text, Parquet file or array is to be preprocessed",
              *config.dictionaries_of);
  const std::string format = format_of(config, config.train_data);
  if (format == kSynthetic) {
    data.owned.push_back(make_synthetic(config, seed, data));
    data.train = data.owned.back().get();
  } else {
    data.train = open_to_train(config, config.train_data, format, "train", data);
  }
  if (config.valid_data) {
    open_valid(config, format, data);
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

std::optional<ClickValues> values_of_column(const ClickDataConfig& config, const std::string& column) {
  if (!config.dictionaries_of || !is_to_preprocess(config, config.train_data)) return std::nullopt;
  return ClickValues{preprocess_column(config.train_data, config.data_format, *config.dictionaries_of, column,
                                       config.unlabelled)};
}

ClickData open_clicks_to_score(const ClickDataConfig& config, const PredictionUse& use) {
  ClickData data;
  ClickFileOptions options = options_for(config, format_of(config, config.train_data));
  options.part = "test";
  options.needs_labels = false;
  options.unlabelled = use.unlabelled;
  options.keep = use.keep;
  options.note_left_out = true;
  options.with_weights = use.unlabelled != Unlabelled::Keep;
  data.train = open_file(config, config.train_data, std::move(options), data);
  if (use.unlabelled != Unlabelled::Keep) data.train = labelled(data.train, config.train_data, data);
  return data;
}

}  // namespace trifold
