// RunSaver: the checkpoints of one run, as its options say: at once or in the background, how many stay, and
// whether a save that fails ends the run.
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
  // Collective. Takes the folder of --save, where there is one, for the run that begins at `start`: BadInput
  // where another process holds it, or it holds checkpoints of another run. Without one nothing is ever
  // saved. References must outlive it. `observer` is null on all ranks but 0.
  RunSaver(Communicator& world, Savable& run, const CheckpointConfig& config, const RunStart& start,
           SaveObserver* observer, std::function<void(SavePhase)> at_phase);

  // Collective. Every --check-replicas steps compares what several ranks hold alike. `save` and `finish` do
  // so as well, unless that was done after this step or --check-replicas is 0: copies that differ are an
  // Error before anything is written, whatever --on-save-error says.
  void check_when_due();
  // Collective. Saves this step, unless that was done. A failure is an Error on all ranks, or with
  // --on-save-error continue a warning.
  void save();
  // Collective. Saves this step, unless that was done, and marks its checkpoint as the best of the folder
  // (kBestName). Fails as `save` does.
  void save_best();
  // Tells of a save in the background that has come to its end. To be called every step; does not wait.
  void poll();
  // Collective. Saves this step and waits for everything outstanding; failures are Errors.
  void finish();

  // Each checkpoint records how the first step from it ended (checkpoint/first_step.h), so the run reports here
  // that its state is loaded,
  void loaded(const RunStart& start);
  // that the last step was finite and changed the weights,
  void step_was_finite();
  // or that step `step` failed with `error`. Returns the error to throw instead, which says what follows for the
  // next run. Collective where the error is Agreed: it waits for a save in the background then.
  Error not_finite(int64_t step, const Error& error, const LoadedStart& loaded);

 private:
  // Whether this step was saved, or is being saved in the background.
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
  std::vector<std::string> warnings_;  // of the thread that saves, until this one tells them; under mutex_
  SaveOptions options_;
  std::optional<SaveFolder> folder_;  // of rank 0
  std::optional<BackgroundSaver> background_;
  FirstStepNotes notes_;
  int64_t checked_step_ = -1;  // the last one after which copies were compared
  int64_t saved_step_ = -1;    // the last one that was saved
  int64_t started_step_ = -1;  // the last one that was saved, or is being saved, in the background
  bool outstanding_is_best_ = false;
};

// For a run that was found to have nothing left to do: removes what a kill behind its last save has left in
// the folder of --save. Where another process holds the folder, that is for it to do.
void tidy_save_folder(const CheckpointConfig& config);

}  // namespace trifold
