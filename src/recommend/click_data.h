// Opens the samples that a recommender's options describe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_source.h"
#include "config/fields/recommend_config.h"

namespace trifold {

struct ClickData {
  std::vector<std::unique_ptr<ClickSource>> owned;  // sources of which the two below may be parts
  const ClickSource* train = nullptr;
  const ClickSource* valid = nullptr;  // null: no validation data
  std::optional<double> best_auc;      // for synthetic clicks: the best AUC that a model can reach on average
  std::vector<std::string> notes;      // messages about malformed rows and rows without a label
  std::vector<int64_t> left_out;       // TextReport::left_out of the samples to score

  // A schema for the samples of both sources: max_ids is the larger of the two, and samples have weights if they have
  // weights in either.
  ClickSchema schema() const;
};

// Opens the training and validation samples. BadInput for files that are missing or damaged, options that contradict
// them, and validation samples that are not compatible with the training samples.
ClickData open_clicks(const ClickDataConfig& config, uint64_t seed);

// The purpose of predictions, which determines the data that are read with the samples.
struct PredictionUse {
  // Keep: the predictions are the result; all samples are predicted, labels are irrelevant and sample weights are not
  // read. Else predictions are compared with the labels.
  Unlabelled unlabelled = Unlabelled::Keep;
  std::vector<std::string> keep = {};  // columns of the input whose texts are kept with the samples
};

// Opens the samples of config.train_data for a trained model, as ClickData::train; of split-binary data the part
// "test". Labels are not required. BadInput as open_clicks.
ClickData open_clicks_to_score(const ClickDataConfig& config, const PredictionUse& use);

// The values of a column of config.train_data, which need not be a feature; nullopt unless that data is preprocessed
// first. BadInput for a column that is missing.
std::optional<ClickValues> values_of_column(const ClickDataConfig& config, const std::string& column);

// The format of preprocessed samples, also if a run preprocesses them first.
inline constexpr const char* kPreprocessed = "clicks";

// Whether the samples at `path` are preprocessed first, provided that --dictionaries-of is given.
bool is_to_preprocess(const ClickDataConfig& config, const std::string& path);

// Whether the training data are a preprocessed folder whose ids are keys. Such data define everything but --table-rows.
bool has_keys(const ClickDataConfig& config);

// The schema that options describe, without reading files. Defaults: 1000 rows per table, 13 dense features.
ClickSchema schema_of_options(const ClickDataConfig& config);

}  // namespace trifold
