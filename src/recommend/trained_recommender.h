// TrainedRecommender is a recommender's checkpoint, opened for predictions, with the samples to predict. Model and
// precision come from the checkpoint; the number of ranks and the placement of the tables may differ.
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
  RecommendConfig config;  // options of the checkpoint that decide predictions, and those given now
  ClickData data;          // its `train` has the samples to predict
  // The schema of the samples, but with the model's labels if they have none, and with the rows of the checkpoint's
  // tables, which may have grown since the samples were encoded.
  ClickSchema schema = {};
  std::string directory;  // folder of the checkpoint
  int64_t step = 0;
  // Added to the logits: corrects for negatives dropped before training (recommend/dropped_negatives.h).
  double logit_offset = 0;
  std::vector<TableStart> starts = {};  // recommend/weights/other_rows.h

  const ClickSource& samples() const { return *data.train; }
};

// Whether a checkpoint holds a recommender.
bool is_recommender(const CheckpointReader& reader);

// The steps of earlier runs whose state --finetune took over, before the run that wrote this checkpoint.
int64_t updates_before(const CheckpointReader& reader);
inline constexpr const char* kUpdatesBefore = "updates_before";  // in CheckpointMeta::state; absent: none

// What a recommender's checkpoint says about its model, as a setup for one rank, without data.
struct StoredRecommender {
  RecommendConfig config;  // the options that decide predictions
  RecommenderSetup setup;
  std::optional<AppliedTransform> transform;  // transform of its training data; absent if not recorded
};
// Reads it. BadInput if its model is invalid or its weights do not belong to the model.
StoredRecommender stored_recommender(const CheckpointReader& reader);

// Opens the checkpoint and the samples. BadInput for a checkpoint that is missing, damaged or not of a recommender, for
// samples that are not compatible with its training data, and if the model does not fit the ranks.
TrainedRecommender open_recommender(const TrainedRecommenderConfig& asked, const PredictionUse& use);

// Adds the properties on which all processes of a command must agree, in addition to their options.
void add_terms(RunTerms& terms, const TrainedRecommender& job);

// Computes the logits of all samples of `feed`, one global batch after the other; after each batch every rank calls
// `take` with its own samples. Returns false if `signal` stopped it before the end. Collective.
bool score_feed(Communicator& world, Recommender& model, const ClickFeed& feed,
                const std::atomic<int>& signal, FunctionRef<void(const Recommender::Scored& scored)> take);

// Builds the model, loads its weights, calls `take` for all samples in their stored order, as score_feed does, and then
// `finish` with the counts of values that have no row. `take` and `finish` may run collectives on the stream, a host
// stream. Returns false if `signal` stopped it before `finish`. An error on one rank aborts the others. Collective.
using TakeScores = FunctionRef<void(const Recommender::Scored& scored, Stream& stream)>;
using FinishScores = FunctionRef<void(Stream& stream, const std::vector<TableUnknowns>& unknown)>;
bool predict_clicks(Communicator& world, const TrainedRecommender& job, const std::atomic<int>& signal,
                    TakeScores take, FinishScores finish);

}  // namespace trifold
