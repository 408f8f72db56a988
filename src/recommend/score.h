// `trifold score`: writes the predictions of a trained recommender, one line or row for each row of the data, in their
// order:
//
//   csv     a header "sample,label,probability", then "0,1,0.0312..."
//   jsonl   {"sample":0,"label":1,"probability":0.0312...}
//   parquet the columns of csv (preprocess/prediction_table.h)
//
// Columns that --keep names follow `sample`. A model of several labels, say click and like, has columns or members
// label_click, label_like, probability_click and probability_like.
//
// `sample` is the number of the row in the input, from 0; the label is omitted if the data have none; the probability is
// sigmoid(logit), with enough digits to be unique in the type of the logits. What is missing is empty in csv and null in
// the others: a label that the row lacks, a text, and the prediction for a row that is malformed.
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

// Call once per process. BadInput for mistakes in files and options.
ScoreJob prepare(const ScoreConfig& config);

// `write` gets the bytes piece by piece on rank 0. Returns the counts of values without a row, or nothing if `signal`
// stopped it. Collective.
std::optional<std::vector<TableUnknowns>> score(Communicator& world, const ScoreJob& job,
                                                const std::atomic<int>& signal,
                                                FunctionRef<void(std::string_view text)> write);

}  // namespace trifold
