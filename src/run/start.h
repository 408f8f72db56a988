// Where a run starts: from random weights, from the checkpoint of --load, or, with --auto-resume, from the
// newest usable one it has saved itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_identity.h"
#include "comm/communicator.h"
#include "config/rules/validate.h"
#include "core/function_ref.h"

namespace trifold {

// The part of a checkpoint that a run takes.
enum class LoadPart {
  All,      // to continue the run
  Weights,  // to begin another run with the same weights
  Encoder,  // the weights without those of the head of a task, which stay as they are
};

struct RunStart {
  std::optional<std::string> from;  // one checkpoint or a folder of them; absent: random weights
  LoadPart part = LoadPart::All;
  bool may_fall_back = false;  // to an older checkpoint, where the newest is damaged
};

// The start that the options and the folders ask for. A folder whose checkpoints are all damaged is no reason
// to begin anew: loading from it reports the damage.
RunStart choose_start(const CheckpointConfig& config);

// Which run it is: that of the checkpoint it goes on from, or a new one.
RunIdentity identity_of(const RunStart& start);

// BadInput where --save cannot be written to, or does not fit to the start: where it holds checkpoints of
// another run, or newer ones than the step the run begins after (absent: not known, something else is wrong).
void check_save(const CheckpointConfig& config, const RunStart& start, std::optional<int64_t> first_step);

// BadInput where the run goes on from the newest checkpoint of the folder that --load names, and the first
// step from that one is known to have been not finite (checkpoint/first_step.h): the same step would fail
// again. A checkpoint that --load names itself is taken as it is, and --auto-resume passes it over.
void check_not_marked(const RunStart& start, const CheckpointConfig& config);

// The place in the data where the run goes on; the beginning where nothing can be read.
RunPosition position_of(const RunStart& start);

struct LoadedStart {
  std::vector<std::string> changes;   // what is different now, as `load` says
  std::vector<std::string> warnings;  // on rank 0: what was wrong with checkpoints that were passed over
  std::vector<int64_t> passed_over;   // steps of those whose first step was not finite
};

// Collective. Loads what `start` says with `load`, which throws on all ranks or on none and returns what is
// different now. Where it may fall back, checkpoints whose first step was not finite
// (checkpoint/first_step.h) come last.
LoadedStart load_start(const RunStart& start, Communicator& world,
                       FunctionRef<std::vector<std::string>(const std::string& path)> load);

}  // namespace trifold
