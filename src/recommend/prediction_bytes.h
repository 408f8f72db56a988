// PredictionBytes encodes predictions as the bytes of a file, in one of the formats of recommend/score.h.
#pragma once

#include <memory>
#include <string_view>

#include "config/fields/recommend_choices.h"
#include "preprocess/prediction_table.h"

namespace trifold {

// To be called in this order: header once, `of` for consecutive rows, end once. Each function returns the next bytes of
// the file, which are valid until the next call.
class PredictionBytes {
 public:
  virtual ~PredictionBytes() = default;
  virtual std::string_view header() { return {}; }
  virtual std::string_view of(const PredictionTable::Rows& rows) = 0;
  virtual std::string_view end() { return {}; }
};

std::unique_ptr<PredictionBytes> prediction_bytes(ScoreFormat format,
                                                  const PredictionTable::Columns& columns);

}  // namespace trifold
