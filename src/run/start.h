// Where a run starts: from random weights, from the checkpoint of --load, or, with --auto-resume, from its own newest
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

// The part of a checkpoint that a run takes.
enum class LoadPart {
  All,      // to continue the run
  Weights,  // to begin another run with the same weights
  Dense,    // the weights of a model without experts, to begin one with experts
  State,    // the weights and the optimizer's state, to begin another run on other data
  Encoder,  // the weights except those of a task's head, which are not changed
};

struct RunStart {
  std::optional<std::string> from;  // one checkpoint or a folder of them; absent: random weights
  LoadPart part = LoadPart::All;
  bool may_fall_back = false;  // to an older checkpoint if the newest is damaged
};

// The start that follows from the options and the folders. A folder whose checkpoints are all damaged does not lead to
// a new start: loading from it reports the damage.
RunStart choose_start(const CheckpointConfig& config);

// The checkpoint with which the run is to begin. If it may fall back, the newest one whose manifest is valid; load_start
// reports those it passes over. BadInput if there is none.
CheckpointReader checkpoint_of(const RunStart& start);

// The run's identity: that of the checkpoint it continues, or a new one.
RunIdentity identity_of(const RunStart& start);

// BadInput if --save is not writable or does not match the start: it holds checkpoints of another run, or newer ones
// than the step after which the run begins (absent: unknown because of other mistakes).
void check_save(const CheckpointConfig& config, const RunStart& start, std::optional<int64_t> first_step);

// BadInput if the run continues from the newest checkpoint of the folder of --load, and the first step from it is known
// to have been not finite (checkpoint/first_step.h): the same step would fail again. A checkpoint that --load names
// directly is accepted, and --auto-resume skips such checkpoints.
void check_not_marked(const RunStart& start, const CheckpointConfig& config);

// The progress from which the run continues; the beginning if nothing can be read.
RunPosition position_of(const RunStart& start);

struct LoadedStart {
  std::vector<std::string> changes;   // differences, as returned by `load`
  std::vector<std::string> warnings;  // on rank 0: why checkpoints were skipped
  std::vector<int64_t> passed_over;   // steps of those whose first step was not finite
};

// Collective. Loads the checkpoint of `start` with `load`, which throws on all ranks or on none and returns the
// differences. If it may fall back, checkpoints whose first step was not finite (checkpoint/first_step.h) are tried
// last.
LoadedStart load_start(const RunStart& start, Communicator& world,
                       FunctionRef<std::vector<std::string>(const std::string& path)> load);

}  // namespace trifold
