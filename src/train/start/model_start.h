// The start of a language model's run: the part of run/start.h that depends on the kind of model.
#pragma once

#include <cstdint>

#include "config/fields/config.h"
#include "data/batch.h"
#include "run/start.h"
#include "text/data_fingerprint.h"

namespace trifold {

// As choose_start in run/start.h. A model with a task's head loads only the weights before the head from a checkpoint
// without such a head.
RunStart choose_start(const CheckpointConfig& config, const ModelConfig& model);

// Checks the start before any rank runs. BadInput if the checkpoint has another model, batch, order of samples or data,
// or leaves nothing to train. `train` may be null; `data` is the fingerprint of the run's data (run/checkpoint_data.h).
// Returns the number of steps that the checkpoint has done.
int64_t check_start(const RunStart& start, const PretrainConfig& config, const DataSource* train,
                    const DataFingerprint& data);

// True when `start` continues a run of this configuration that has done all its steps.
bool is_finished(const RunStart& start, const PretrainConfig& config);

// Collective. BadInput if `train` is streamed text that differs between processes, for example between hosts: each
// process generates the whole stream and takes its share, so the run would see some samples twice and others never.
void check_same_data(Communicator& world, const DataSource& train);

}  // namespace trifold
