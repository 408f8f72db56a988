// From the options of a recommender to its samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_source.h"
#include "config/fields/recommend_config.h"

namespace trifold {

struct ClickData {
  std::vector<std::unique_ptr<ClickSource>> owned;  // what the two below may be parts of
  const ClickSource* train = nullptr;
  const ClickSource* valid = nullptr;  // null: nothing to evaluate on
  std::optional<double> best_auc;      // of synthetic clicks: what no model can exceed on average
  std::vector<std::string> notes;      // for people: malformed lines

  // That of both: bags have as many ids as the longest of either.
  ClickSchema schema() const;
};

// BadInput for files that are missing or wrong, options that do not agree with them, and samples to evaluate
// on that mean something else than those to train on.
ClickData open_clicks(const ClickDataConfig& config, uint64_t seed);

// The samples of train_data for a trained model, as ClickData::train: the test part of split-binary data, and
// text that may have no labels. BadInput as above.
ClickData open_clicks_to_score(const ClickDataConfig& config);

// The schema that the options name, without a look at any file: 1000 rows and 13 dense features where they
// are not given.
ClickSchema schema_of_options(const ClickDataConfig& config);

}  // namespace trifold
