// TrainedRecommender: a recommender's checkpoint opened for predictions, with the samples to predict. Model and
// precision come from the checkpoint; ranks and the placement of the tables may differ.
//
//   const TrainedRecommender job = open_recommender(config);          once per process: finds mistakes
//   predict_clicks(world, job, signal, take, finish);                 on every rank
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/reader.h"
#include "clicks/click_source.h"
#include "clicks/click_transform.h"
#include "config/fields/recommend_config.h"
#include "core/function_ref.h"
#include "recommend/click_data.h"
#include "recommend/metrics/unknown_values.h"
#include "recommend/recommender.h"
#include "recommend/weights/other_rows.h"
#include "run/terms.h"

namespace trifold {

struct TrainedRecommender {
  RecommendConfig config;  // the checkpoint's options that decide predictions, and those given now
  ClickData data;          // the samples to predict are `train`
  // The schema of the samples, with the model's labels if they have none, and with the checkpoint's rows, which are
  // more if its dictionaries were grown.
  ClickSchema schema = {};
  std::string directory;  // of the checkpoint
  int64_t step = 0;
  // Added to the logits: the correction for negatives that were dropped before training (recommend/dropped_negatives.h).
  double logit_offset = 0;
  std::vector<TableStart> starts = {};  // recommend/weights/other_rows.h

  const ClickSource& samples() const { return *data.train; }
};

// Whether a checkpoint is one of a recommender.
bool is_recommender(const CheckpointReader& reader);

// The steps of runs before that of a recommender's checkpoint, from which --finetune took its state.
int64_t updates_before(const CheckpointReader& reader);
inline constexpr const char* kUpdatesBefore = "updates_before";  // in CheckpointMeta::state; absent: none

// The description that a recommender's checkpoint has of itself, for one rank, without data.
struct StoredRecommender {
  RecommendConfig config;  // the options that decide predictions
  RecommenderSetup setup;
  std::optional<AppliedTransform> transform;  // of the numbers it was trained on; absent if it does not say
};
// BadInput if its model is invalid or its weights do not belong to the model.
StoredRecommender stored_recommender(const CheckpointReader& reader);

// BadInput for a checkpoint that is missing, damaged or not of a recommender, for data that are not compatible with its
// training data, and for ranks that cannot hold it.
TrainedRecommender open_recommender(const TrainedRecommenderConfig& asked, const PredictionUse& use);

// Adds what the processes of a command must agree on in addition to options.
void add_terms(RunTerms& terms, const TrainedRecommender& job);

// Computes the logits of the samples of `feed`, one global batch after the other, and passes each batch to `take`, on
// every rank its own samples. False if `signal` stopped it before the end. Collective.
bool score_feed(Communicator& world, Recommender& model, const ClickFeed& feed,
                const std::atomic<int>& signal, FunctionRef<void(const Recommender::Scored& scored)> take);

// Builds the model, loads its weights, and calls `take` with the global batches of all samples in their stored
// order, as score_feed does, and then `finish`, with counts of the values that have no row; the stream, a host stream, is
// for their collectives. False if `signal` stopped it before `finish`. An error on one rank aborts the others. Collective.
using TakeScores = FunctionRef<void(const Recommender::Scored& scored, Stream& stream)>;
using FinishScores = FunctionRef<void(Stream& stream, const std::vector<TableUnknowns>& unknown)>;
bool predict_clicks(Communicator& world, const TrainedRecommender& job, const std::atomic<int>& signal,
                    TakeScores take, FinishScores finish);

}  // namespace trifold
