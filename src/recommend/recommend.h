// `trifold recommend` trains a recommender. `prepare` runs once per process, opens the data and reports mistakes in
// options and files; `recommend` runs on every rank.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "config/fields/recommend_config.h"
#include "embedding/planner.h"
#include "recommend/click_data.h"
#include "recommend/metrics/label_metrics.h"
#include "recommend/recommender.h"
#include "run/job.h"
#include "run/loop.h"
#include "run/metrics.h"

namespace trifold {

struct RecommendJob : RunJob {
  RecommendConfig config;  // resolved
  ClickData data;
};

RecommendJob prepare(RecommendConfig config, RanksHere ranks = RanksHere::All);

// Completes a configuration to be planned: model options that were not given, and the number of dense features, are
// taken from the checkpoint that the run would start from, if there is one. BadInput for a model that is invalid or
// contradicts the checkpoint.
RecommendConfig with_model_of_start(RecommendConfig config);

struct ClickEvaluation {
  int64_t step = 0;
  std::vector<LabelScores> labels;  // one per label
  double seconds = 0;
};

// The start report of a recommender; its parameters include the tables.
struct RecommendReport : StartReport {
  int64_t steps_per_epoch = 0;
  int64_t train_samples = 0;
  int64_t valid_samples = 0;
  std::optional<double> best_auc;
  RecommenderMemory memory;  // on rank 0
  std::vector<std::string> notes;
  // The placement of the tables, to be printed as a table.
  std::vector<EmbeddingTable> tables;
  std::vector<TablePlacement> placement;
  std::vector<RankLoad> loads;
};

class RecommendObserver : public SaveObserver {
 public:
  virtual void on_start(const RecommendReport& report) = 0;
  // Called before each on_step if rank 0 has tables in files; `rows` is Recommender::cached_rows.
  virtual void on_rows(const RowCache::Counts& /*rows*/) {}
  virtual void on_step(const StepReport& step) = 0;
  virtual void on_eval(const ClickEvaluation& evaluation) = 0;
  virtual void on_target(int64_t step, double auc, double target) = 0;
};

// The run of one rank, whose steps the caller directs.
class RecommendTraining : public TrainingRun {
 public:
  virtual Recommender& model() = 0;
};

// Collective over `world`. `observer` may be null. `ops` as in Recommender. All references must outlive the run.
std::unique_ptr<RecommendTraining> recommend_run(Communicator& world, const RecommendJob& job,
                                                 RecommendObserver* observer, const OpTable* ops = nullptr);

// Collective over `world`. `observer` is called on rank 0. A non-zero `signal` on any rank ends the run after the
// current step of all ranks.
RunEnd recommend(Communicator& world, const RecommendJob& job, RecommendObserver& observer,
                 const std::atomic<int>& signal);

}  // namespace trifold
