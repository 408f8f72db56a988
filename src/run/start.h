// The start of a run: from random weights, from the checkpoint of --load, or, with --auto-resume, from its own newest
// usable checkpoint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/run_identity.h"
#include "comm/communicator.h"
#include "config/commands/validate.h"
#include "core/function_ref.h"

namespace trifold {

// The part of a checkpoint that a run loads.
enum class LoadPart {
  All,      // to continue the run
  Weights,  // to begin another run with the same weights
  Dense,    // the weights of a model without experts, to begin one with experts
  State,    // the weights and the optimizer's state, to begin another run on other data
  Encoder,  // the weights except a task's head, which stays unchanged
};

struct RunStart {
  // One checkpoint, a folder of them, or a Hugging Face folder; absent: random weights.
  std::optional<std::string> from;
  LoadPart part = LoadPart::All;
  bool may_fall_back = false;  // to an older checkpoint if the newest is damaged
  bool new_optimizer = false;  // LoadPart::All without the optimizer state (--no-load-optim)
  // Identifies what a run computes: equal for runs of the same options and data from the same start. Empty: unknown.
  std::string computation = {};
  // The identity of an earlier start of this run, which it takes over (run/model_folders.h). Empty: none.
  std::string earlier_id = {};
};

// Chooses the start from the options and the folders. A folder whose checkpoints are all damaged does not lead to a new
// start: loading from it reports the damage.
RunStart choose_start(const CheckpointConfig& config);

// The checkpoint with which the run begins. If it may fall back, that is the newest checkpoint with a valid manifest;
// load_start reports the newer ones that it skips. BadInput if there is none.
CheckpointReader checkpoint_of(const RunStart& start);

// The run's identity: a new one, or the identity of its earlier start or in the checkpoint that it continues.
RunIdentity identity_of(const RunStart& start);

// BadInput if --save is not writable or does not match the start: it holds checkpoints of another run, or checkpoints
// newer than `first_step`, the step after which the run begins (absent: unknown because of other mistakes).
void check_save(const CheckpointConfig& config, const RunStart& start, std::optional<int64_t> first_step);

// BadInput if the run continues from the newest checkpoint of the folder of --load, and the first step from it is known
// not to be finite (checkpoint/first_step.h): it would fail again. A checkpoint that --load names directly is accepted,
// and --auto-resume skips such checkpoints.
void check_not_marked(const RunStart& start, const CheckpointConfig& config);

// The progress from which the run continues; the beginning if nothing can be read.
RunPosition position_of(const RunStart& start);

struct LoadedStart {
  std::vector<std::string> changes;   // differences, as returned by `load`
  std::vector<std::string> warnings;  // on rank 0: why checkpoints were skipped
  std::vector<int64_t> passed_over;   // steps of skipped checkpoints whose first step was not finite
};

// Collective. Loads the checkpoint of `start` with `load`, which throws on all ranks or on none and returns the
// differences. If it may fall back, checkpoints whose first step was not finite (checkpoint/first_step.h) are tried
// last.
LoadedStart load_start(const RunStart& start, Communicator& world,
                       FunctionRef<std::vector<std::string>(const std::string& path)> load);

}  // namespace trifold
