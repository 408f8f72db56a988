// LoneRecommender: one rank of a recommender's run of any size, alone in this process. Its part of the tables, its copy
// of the MLPs, its data and its steps are real; its peers are absent (rehearse/absent_clicks.h).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/flight/flight_recorder.h"
#include "recommend/recommend.h"
#include "rehearse/absent_clicks.h"
#include "rehearse/lone_rank.h"

namespace trifold {

class LoneRecommender final : public LoneRank {
 public:
  // `job` must outlive this object. `waits`: calls take their planned time. `ops` as in Recommender.
  LoneRecommender(const RecommendJob& job, int rank, const AbsentClicksOptions& peers, bool waits,
                  const OpTable* ops = nullptr);

  Recommender& model() { return run_->model(); }
  Communicator& world() { return *world_; }
  FlightRecorder& recorder() { return *recorder_; }
  AbsentCallCounts& calls() { return calls_; }

  std::vector<std::string> load() override;
  void advance() override { run_->advance(signal_); }
  void watch(StepWatch* watch) override { run_->model().watch(watch); }
  void settle() override { run_->model().synchronize(); }
  const RankPlan& actions() const override { return actions_; }
  int64_t steps_left() const override { return job_.limits.last_step - run_->state().steps_done(); }
  void note_held(RehearsedRank& result) const override;

 private:
  const RecommendJob& job_;
  AbsentCallCounts calls_;
  AbsentClicks peers_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<RecommendTraining> run_;
  RankPlan actions_;
  std::atomic<int> signal_{0};
};

// The categories of a recommender's memory (recommend/planning/recommender_memory.h), with nothing held yet.
std::vector<MemoryPart> memory_parts(const RecommenderMemory& planned);

}  // namespace trifold
