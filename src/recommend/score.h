// `trifold score`: the predictions of a trained recommender, a line of text for each sample in the order of the
// data:
//
//   csv     a header "sample,label,probability", then "0,1,0.0312..."
//   jsonl   {"sample":0,"label":1,"probability":0.0312...}
//
// `sample` counts the samples that were read, from 0; the label is left out where the data have none; the
// probability is sigmoid(logit) with as many digits as tell it from its neighbours in the type of the logits.
#pragma once

#include <atomic>
#include <string_view>

#include "config/fields/recommend_config.h"
#include "core/function_ref.h"
#include "recommend/trained_recommender.h"

namespace trifold {

struct ScoreJob {
  ScoreConfig config;
  TrainedRecommender recommender;
  RunTerms terms;
};

// Once a process. BadInput for whatever is wrong with files and options.
ScoreJob prepare(const ScoreConfig& config);

// `write` gets the text, piece by piece, on rank 0. False where `signal` stopped it. Collective.
bool score(Communicator& world, const ScoreJob& job, const std::atomic<int>& signal,
           FunctionRef<void(std::string_view text)> write);

}  // namespace trifold
