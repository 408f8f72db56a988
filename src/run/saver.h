// RunSaver writes the checkpoints of a run as its options say: in the foreground or background, how many to keep, and
// whether a failed save ends the run.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "checkpoint/first_step.h"
#include "checkpoint/save_folder.h"
#include "config/fields/config.h"
#include "run/metrics.h"
#include "run/savable.h"
#include "run/start.h"

namespace trifold {

class RunSaver {
 public:
  // Collective. Locks the folder of --save, if given, for the run that begins at `start`: BadInput if another process
  // holds it, or it has checkpoints of another run. Without --save nothing is ever saved. References must outlive this
  // object. `observer` is null on all ranks but 0.
  RunSaver(Communicator& world, Savable& run, const CheckpointConfig& config, const RunStart& start,
           SaveObserver* observer, std::function<void(SavePhase)> at_phase);

  // The identity of the run, on rank 0.
  const std::string& run_id() const { return options_.run_id; }

  // Collective. Compares replicas every --check-replicas steps. `save` and `finish` do so as well, unless this step was
  // already compared or --check-replicas is 0: a difference is an Error before anything is written, regardless of
  // --on-save-error.
  void check_when_due();
  // Collective. Saves this step, unless it is saved already. A failure is an Error on all ranks, or a warning with
  // --on-save-error continue.
  void save();
  // Collective. Saves this step, unless it is saved already, and marks its checkpoint as the best of the folder
  // (kBestName). Fails as `save` does.
  void save_best();
  // Reports a background save that has ended; does not wait. Call it every step.
  void poll();
  // After a step, the state of an earlier one was loaded: the newest usable checkpoint at `start`.
  void returned_to(const RunStart& start);
  // Collective. Waits for a background save, so that its checkpoint can be loaded; a failure is as in `save`.
  void wait();
  // Collective. Saves this step and waits for everything outstanding; failures are Errors.
  void finish();

  // Each checkpoint records how the first step from it ended (checkpoint/first_step.h). The run reports to the saver
  // that its state is loaded,
  void loaded(const RunStart& start);
  // that the last step was finite and changed the weights,
  void step_was_finite();
  // or that step `step` failed with `error`. Returns the error to throw instead, which adds the consequences for the
  // next run. Collective if the error is Agreed: it then waits for a background save.
  Error not_finite(int64_t step, const Error& error, const LoadedStart& loaded);

 private:
  // Whether this step was saved, or its background save was started. The same on all ranks.
  bool is_saved() const;
  void mark_saved_as_best();
  void check_replicas();
  void save_now();
  void start_in_background();
  void take_result();
  void failed(const Error& error);

  void take_folder(const RunStart& start);
  void tell_warnings();

  Communicator& world_;
  Savable& run_;
  const CheckpointConfig& config_;
  SaveObserver* observer_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;  // not yet reported by the saving thread; guarded by mutex_
  SaveOptions options_;
  std::optional<SaveFolder> folder_;  // on rank 0
  std::optional<BackgroundSaver> background_;
  FirstStepNotes notes_;
  int64_t checked_step_ = -1;  // last step after which copies were compared
  int64_t saved_step_ = -1;    // last step that was saved
  int64_t started_step_ = -1;  // last step whose background save was started
  bool started_as_best_ = false;
};

// For a run with nothing left to do: removes the files that a kill after its last save left in the folder of --save,
// unless another process holds the folder.
void tidy_save_folder(const CheckpointConfig& config);

}  // namespace trifold
