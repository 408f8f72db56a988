// Scales rates that were measured on processors to the cores that the ranks of a planned run have.
//
// A rank of a run uses --threads-per-rank cores, or an equal part of those of its node. Rates measured by one rank on all
// cores are therefore not those of each of two ranks on the same machine.
#pragma once

#include "config/fields/config.h"

namespace trifold {

// The cores behind a measurement. `node` 0: not of cores; ranks are devices of their own.
struct NodeCores {
  double node = 0;   // of the machine
  double rank = 0;   // of each rank that measured
  double ranks = 0;  // at most on a machine
};

// A rank of the run on such machines.
struct RankCores {
  double ratio = 1;  // its cores, relative to those of a rank that measured
  double ranks = 1;  // on its machine
};
RankCores rank_cores(const NodeCores& measured, const MeshConfig& mesh);

}  // namespace trifold
