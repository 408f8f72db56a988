// ModelFolders writes the model of a run as Hugging Face folders while it trains (--save-hf-interval):
// <folder>/hf_iter_<seven digits>. A save first writes the weights as a checkpoint, in the background and by all ranks,
// as --async-save does; rank 0 then converts the checkpoint, a part at a time, and removes it. No rank holds more than a
// copy of its own weights and the buffers of the conversion; the disk holds the weights twice for a moment.
//
// Everything is written in a scratch folder next to the final name (files/scratch_folder.h) and gets that name when it
// is complete and on the disk. What a killed run leaves is removed by the next run with this folder.
//
// A model's folder has a file trifold_run with the identity of its run (checkpoint/run_identity.h) and, in a second line,
// what the run computes (RunStart::computation). A run saves into a folder with models only if they are its own: it
// continues from one of its checkpoints, or it was killed before the first and starts over to compute the same.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/background_saver.h"
#include "checkpoint/save_folder.h"
#include "config/fields/config.h"
#include "files/scratch_folder.h"
#include "run/metrics.h"
#include "run/savable.h"
#include "run/start.h"

namespace trifold {

// Converts a checkpoint to a new folder. Runs on rank 0, on the saving thread.
using WriteModel =
    std::function<void(const std::filesystem::path& checkpoint, const std::filesystem::path& folder)>;

class ModelFolders {
 public:
  // Collective. Locks the folder of --save-hf, if given: BadInput if another process holds it, or it has models of a
  // run other than `run_id`, which counts on rank 0. `computation` as in RunStart. References must outlive this object.
  // `observer` is null on all ranks but 0. `at_phase` is called in every phase of a save, for tests.
  ModelFolders(Communicator& world, Savable& run, const CheckpointConfig& config, const std::string& run_id,
               std::string computation, const WriteModel& write, SaveObserver* observer,
               std::function<void(SavePhase)> at_phase);

  // Collective; only with --save-hf. Begins to write this step's model; waits for the one before. Failures of the one
  // before are Errors on all ranks, or warnings with --on-save-error continue.
  void save();
  // Does the same unless this step's model is in the folder.
  void save_if_missing();
  // Reports a folder that is complete; does not wait.
  void poll();
  // Collective. Waits for everything outstanding; failures as in `save`.
  void finish();

 private:
  void take_folder(const std::string& run_id);
  void start();
  void take_result();
  void failed(const Error& error);
  void tell_warnings();
  std::filesystem::path convert(const std::filesystem::path& checkpoint, const std::filesystem::path& target,
                                ScratchFolder& scratch);

  Communicator& world_;
  Savable& run_;
  const CheckpointConfig& config_;
  std::string computation_;
  const WriteModel& write_;
  SaveObserver* observer_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;  // not yet reported by the saving thread; guarded by mutex_
  SaveOptions options_;
  std::optional<SaveFolder> folder_;  // on rank 0
  std::optional<BackgroundSaver> background_;
  int64_t started_step_ = -1;
};

// The models in the folder of --save-hf with their steps, newest first; empty if the folder is missing.
std::vector<std::pair<int64_t, std::filesystem::path>> models_in(const std::filesystem::path& root);

// Whether the checkpoint at `start` is of a step whose model is due but missing, because a kill came before it was
// complete. The run then writes it even if no step is left.
bool lacks_model(const RunStart& start, const CheckpointConfig& config);

// With --auto-resume and before the first checkpoint: if the folder of --save-hf has models of one run alone, and that run
// computed what this one will, sets start.earlier_id to its identity, so that this run replaces them.
void take_over_models(const CheckpointConfig& config, RunStart& start);

// BadInput if --save-hf cannot be used: it is not writable, is the folder of --save, contains --load, is in use, or has
// models of another run than the one that starts at `start`.
void check_model_folder(const CheckpointConfig& config, const RunStart& start);

}  // namespace trifold
