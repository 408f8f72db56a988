// ClickSampleOptions: which rows of raw clicks become samples, and the data that are read with them. These options are
// shared by reading raw data directly and by preprocessing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

struct ClickSampleOptions {
  bool needs_labels = true;  // false: an input may have no labels (ClickSchema::labeled)
  Unlabelled unlabelled = Unlabelled::Malformed;
  // Share of malformed rows above which an input is rejected. Default: the share of the folder whose encoding is
  // reused, or kMaxMalformed.
  std::optional<double> max_malformed;
  std::vector<std::string> keep;  // columns whose texts are kept with the samples
  bool note_left_out = false;     // fill TextReport::left_out
  bool with_weights = true;       // false: sample weights are not read, even if options name their column
};

}  // namespace trifold
