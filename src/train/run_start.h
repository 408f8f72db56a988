// Where a run starts: from random weights, from the checkpoint of --load, or, with --auto-resume, from the
// newest usable one it has saved itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_identity.h"
#include "config/validate.h"
#include "core/function_ref.h"
#include "train/trainer.h"

namespace trifold {

struct RunStart {
  std::optional<std::string> from;  // one checkpoint or a folder of them; absent: random weights
  Trainer::LoadPart part = Trainer::LoadPart::All;
  bool may_fall_back = false;  // to an older checkpoint, where the newest is damaged
};

// What the options and the folders say. A folder with checkpoints of which none is valid is no reason to
// start anew: it is found out when the checkpoint is looked into.
// A model with the head of a task takes of a checkpoint without it what comes before the head.
RunStart choose_start(const CheckpointConfig& config, const ModelConfig& model = {});

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

// What can be said about the start before any rank runs: BadInput for a checkpoint of another model, batch,
// order of the data or data (`train` may be null; of `data`, those of the run, see train/checkpoint_data.h),
// or one that leaves nothing to train. Returns the steps it has done.
int64_t check_start(const RunStart& start, const PretrainConfig& config, const DataSource* train,
                    const DataFingerprint& data);

// True when `start` is a run of this configuration that has done all its steps.
bool is_finished(const RunStart& start, const PretrainConfig& config);

// Collective. BadInput when `train` is streamed text that is not the same in every process, on another host
// for example: each makes the whole stream and takes its share, so the run would see some twice and others
// never.
void check_same_data(Communicator& world, const DataSource& train);

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
