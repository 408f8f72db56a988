// Which rows of raw clicks become samples, and what goes with them: the options that reading data where they are and
// preprocessing them have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

struct ClickSampleOptions {
  bool needs_labels = true;  // else an input may have none (ClickSchema::labeled)
  Unlabelled unlabelled = Unlabelled::Malformed;
  // Share of malformed rows above which an input is rejected. By default that of the folder whose encoding is reused,
  // or kMaxMalformed.
  std::optional<double> max_malformed;
  std::vector<std::string> keep;  // columns whose texts go with the samples
  bool note_left_out = false;     // fill TextReport::left_out
  bool with_weights = true;       // else weights of samples are not read, even if the columns are named
};

}  // namespace trifold
