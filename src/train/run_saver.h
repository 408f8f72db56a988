// RunSaver: the checkpoints of one run, as its options say: at once or in the background, how many stay, and
// whether a save that fails ends the run.
#pragma once

#include <functional>
#include <optional>

#include "checkpoint/background_saver.h"
#include "checkpoint/save_folder.h"
#include "train/metrics.h"
#include "train/trainer.h"

namespace trifold {

class RunSaver {
 public:
  // Collective. Takes the folder of --save, where there is one; without one nothing is ever saved. References
  // must outlive it. `observer` is null on all ranks but 0.
  RunSaver(Communicator& world, Trainer& trainer, const CheckpointConfig& config, RunObserver* observer,
           std::function<void(SavePhase)> at_phase);

  // Collective. Saves this step, unless that was done. A failure is an Error on all ranks, or with
  // --on-save-error continue a warning.
  void save();
  // Tells of a save in the background that has come to its end. To be called every step; does not wait.
  void poll();
  // Collective. Saves this step and waits for everything outstanding; failures are Errors.
  void finish();

 private:
  void save_now();
  void start_in_background();
  void take_result();
  void failed(const Error& error);

  Trainer& trainer_;
  const CheckpointConfig& config_;
  RunObserver* observer_;
  SaveOptions options_;
  std::optional<SaveFolder> folder_;  // of rank 0
  std::optional<BackgroundSaver> background_;
  int64_t saved_step_ = -1;    // the last one that was saved, or is being saved
  int64_t started_step_ = -1;  // the outstanding one
};

}  // namespace trifold
