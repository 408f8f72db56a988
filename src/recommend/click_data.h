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
  std::optional<double> best_auc;      // for synthetic clicks: the most that a model can reach on average
  std::vector<std::string> notes;      // for people: malformed rows, and rows without a label
  std::vector<int64_t> left_out;       // of the samples to score: TextReport::left_out

  // The schema of both: max_ids are the larger of the two, and samples have weights if they have in one of them.
  ClickSchema schema() const;
};

// BadInput for files that are missing or damaged, options that contradict them, and validation samples that are not
// compatible with the training samples.
ClickData open_clicks(const ClickDataConfig& config, uint64_t seed);

// What the predictions of samples are for.
struct PredictionUse {
  // Keep: for themselves. All samples are predicted, labels are irrelevant and weights of samples are not read. Else they
  // are compared with the labels.
  Unlabelled unlabelled = Unlabelled::Keep;
  std::vector<std::string> keep = {};  // columns of the input whose texts go with the samples
};

// The samples of train_data for a trained model, as ClickData::train: the test part of split-binary data, or text. No
// format needs labels. BadInput as above.
ClickData open_clicks_to_score(const ClickDataConfig& config, const PredictionUse& use);

// The values of a column of train_data, which need not be a feature; nothing unless it is preprocessed first. BadInput for
// a column that is missing.
std::optional<ClickValues> values_of_column(const ClickDataConfig& config, const std::string& column);

// The name of the format of samples that are preprocessed first, and of those that have been.
inline constexpr const char* kPreprocessed = "clicks";

// Whether the samples at `path` are preprocessed first if --dictionaries-of is given.
bool is_to_preprocess(const ClickDataConfig& config, const std::string& path);

// Whether the training data are a folder whose ids are keys, which needs --table-rows and defines everything else.
bool has_keys(const ClickDataConfig& config);

// The schema given by the options, without reading files: 1000 rows and 13 dense features where they are not given.
ClickSchema schema_of_options(const ClickDataConfig& config);

}  // namespace trifold
