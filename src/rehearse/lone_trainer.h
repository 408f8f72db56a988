// LoneTrainer: the trainer of one rank of a mesh of any size, alone in this process. Everything of the rank is real:
// construction, allocations, weights, data, executor, optimizer; its peers are absent.
#pragma once

#include <memory>
#include <optional>

#include "core/flight/flight_recorder.h"
#include "rehearse/absent_trainers.h"
#include "rehearse/lone_rank.h"
#include "rehearse/rehearse.h"
#include "train/trainer.h"

namespace trifold {

class LoneTrainer final : public LoneRank {
 public:
  // `planned` are the plans of `config`; `train` and `start`, which may be null (random weights), must outlive this object.
  // `ops` as in Trainer.
  LoneTrainer(const PretrainConfig& config, const PlannedRuns& planned, const DataSource& train,
              const RunStart* start, int rank, const RehearseOptions& options, const OpTable* ops = nullptr);

  Trainer& trainer() { return *trainer_; }
  Communicator& world() { return *world_; }
  FlightRecorder& recorder() { return *recorder_; }
  AbsentCallCounts& calls() { return calls_; }
  // Steps without an update, because gradients overflowed.
  int64_t skipped() const { return skipped_; }

  std::vector<std::string> load() override;
  void advance() override;
  int64_t steps_at_once() const override { return last_steps_; }
  int64_t steps_left() const override { return train_iters_ - trainer_->steps_done(); }
  void watch(StepWatch* watch) override { trainer_->watch(watch); }
  void settle() override;
  const RankPlan& actions() const override { return trainer_->actions(); }
  void note_held(RehearsedRank& result) const override { result.held = trainer_->held(); }

 private:
  const RunStart* start_;
  bool other_batch_;  // than a checkpoint's
  int64_t train_iters_;
  AbsentCallCounts calls_;
  AbsentTrainers peers_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::unique_ptr<Communicator> world_;
  std::optional<Trainer> trainer_;
  int64_t last_steps_ = 1;
  int64_t skipped_ = 0;
};

}  // namespace trifold
