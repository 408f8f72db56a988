// ClickSampleOptions says which rows of raw clicks become samples and what is read with them. Reading raw data directly
// and preprocessing share these options.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

struct ClickSampleOptions {
  bool needs_labels = true;  // else an input may have none (ClickSchema::labeled)
  Unlabelled unlabelled = Unlabelled::Malformed;
  // Share of malformed rows above which an input is rejected. Default: the share of the folder whose encoding is
  // reused, or kMaxMalformed.
  std::optional<double> max_malformed;
  std::vector<std::string> keep;  // columns whose texts are kept with the samples
  bool note_left_out = false;     // fill TextReport::left_out
  bool with_weights = true;       // else sample weights are not read, even if options name their column
};

}  // namespace trifold
