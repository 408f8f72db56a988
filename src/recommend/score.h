// `trifold score` writes the predictions of a trained recommender, one line or row for each row of the input, in the
// same order:
//
//   csv     a header "sample,label,probability", then "0,1,0.0312..."
//   jsonl   {"sample":0,"label":1,"probability":0.0312...}
//   parquet the columns of csv (preprocess/prediction_table.h)
//
// Columns that --keep names follow `sample`. A model of several labels, say click and like, has columns or members
// label_click, label_like, probability_click and probability_like.
//
// `sample` is the index of the row in the input, from 0. The label is omitted if the data have no labels. The
// probability is sigmoid(logit), with enough digits to be unique in the type of the logits. Missing values are empty in
// csv and null in the other formats: a label that a row lacks, an empty text, and the prediction for a malformed row.
#pragma once

#include <atomic>
#include <optional>
#include <string_view>
#include <vector>

#include "config/fields/recommend_config.h"
#include "core/function_ref.h"
#include "recommend/trained_recommender.h"

namespace trifold {

struct ScoreJob {
  ScoreConfig config;
  TrainedRecommender recommender;
  RunTerms terms;
};

// Opens checkpoint and data. To be called once per process. BadInput for mistakes in files and options.
ScoreJob prepare(const ScoreConfig& config);

// Computes the predictions; on rank 0 `write` gets the bytes of the output piece by piece. Returns the counts of values
// without a row, or nullopt if `signal` stopped it. Collective.
std::optional<std::vector<TableUnknowns>> score(Communicator& world, const ScoreJob& job,
                                                const std::atomic<int>& signal,
                                                FunctionRef<void(std::string_view text)> write);

}  // namespace trifold
