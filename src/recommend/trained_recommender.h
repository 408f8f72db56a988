// TrainedRecommender: a recommender's checkpoint opened for predictions, with the samples to predict. Model and
// precision are the checkpoint's; ranks and the placement of the tables are free.
//
//   const TrainedRecommender job = open_recommender(config);          once a process: finds what is wrong
//   predict_clicks(world, job, signal, take, finish);                 on every rank
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "clicks/click_source.h"
#include "config/fields/recommend_config.h"
#include "core/function_ref.h"
#include "recommend/click_data.h"
#include "recommend/recommender.h"
#include "run/terms.h"

namespace trifold {

struct TrainedRecommender {
  RecommendConfig config;  // the options of the checkpoint that decide predictions, and those asked for now
  ClickData data;          // what is predicted is `train`
  std::string directory;   // of the checkpoint
  int64_t step = 0;

  const ClickSource& samples() const { return *data.train; }
};

// BadInput for a checkpoint that is missing, damaged or none of a recommender, data that mean something else
// than those it was trained on, and ranks that cannot hold it.
TrainedRecommender open_recommender(const TrainedRecommenderConfig& asked);

// What the processes of a command must agree on, beside its options.
void add_terms(RunTerms& terms, const TrainedRecommender& job);

// Computes the logits of the samples of `feed`, one global batch after the other, and shows `take` each batch:
// on every rank its own samples. False where `signal` asked a rank to stop before the end. Collective.
bool score_feed(Communicator& world, Recommender& model, const ClickFeed& feed,
                const std::atomic<int>& signal, FunctionRef<void(const Recommender::Scored& scored)> take);

// Builds the model, loads its weights, and calls `take` with the global batches of all samples in their stored
// order, as score_feed does, and then `finish`; the stream, of the host, is for their collectives. False where
// `signal` stopped it before `finish`. An error on one rank aborts the others. Collective.
using TakeScores = FunctionRef<void(const Recommender::Scored& scored, Stream& stream)>;
bool predict_clicks(Communicator& world, const TrainedRecommender& job, const std::atomic<int>& signal,
                    TakeScores take, FunctionRef<void(Stream& stream)> finish);

}  // namespace trifold
