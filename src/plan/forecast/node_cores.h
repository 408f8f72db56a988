// Scales rates that were measured on processors to the cores that the ranks of a planned run have.
//
// A rank uses --threads-per-rank cores, or an equal part of its node's cores. Rates measured by one rank on all cores
// must therefore be scaled down for two ranks on the same machine.
#pragma once

#include "config/fields/config.h"

namespace trifold {

// Cores of the machine on which rates were measured. `node` 0: the rates are per device, not per core.
struct NodeCores {
  double node = 0;   // cores of the machine
  double rank = 0;   // cores of each rank that measured
  double ranks = 0;  // most ranks on a machine
};

// The cores of a planned run's rank on such a machine.
struct RankCores {
  double ratio = 1;  // relative to the cores of a rank that measured
  double ranks = 1;  // ranks on the same machine
};
RankCores rank_cores(const NodeCores& measured, const MeshConfig& mesh);

}  // namespace trifold
