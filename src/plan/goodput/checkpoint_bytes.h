// Bytes of a run's checkpoint: weights (f32, or f64 with --f64) and optimizer state, without padding and copies.
#pragma once

#include "config/fields/config.h"
#include "plan/planned_run.h"

namespace trifold {

struct CheckpointBytes {
  double all = 0;   // the whole checkpoint; at most, if the optimizer's rules differ in their state
  double rank = 0;  // what the rank with most of it writes
};
CheckpointBytes checkpoint_bytes(const PlannedRun& planned, const CheckpointConfig& checkpoint);

}  // namespace trifold
