// Changes a run's options for a rank that is rehearsed alone, in runs of every kind.
#pragma once

#include <string>
#include <vector>

#include "config/fields/config.h"

namespace trifold {

// Gives the rank the cores that it would have among the --ranks-per-node ranks of a host like this one, or all, unless the
// options give it a number or it computes on a device.
void take_cores(MeshConfig& mesh);

// Turns off what compares the rank with others, which always differ from it here, with a note for each.
void leave_out_comparisons(CheckpointConfig& checkpoint, LogConfig& log, std::vector<std::string>& notes);

}  // namespace trifold
