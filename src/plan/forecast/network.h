// Times in seconds of collectives and messages, depending on whether their ranks share a node.
#pragma once

#include "mesh/mesh.h"
#include "plan/forecast/block_costs.h"
#include "plan/forecast/hardware.h"
#include "plan/forecast/software.h"
#include "plan/forecast/workload.h"

namespace trifold {

// `ranks` ranks of a ring, of which `in_node` share a node.
struct Ring {
  double ranks = 1;
  double in_node = 1;
  double nodes() const { return ranks / in_node; }
};

// The ring of the ranks that differ only along `axes`. Ranks are numbered tensor fastest, then context, data and
// pipeline, and fill one node after the other; ranks that share experts are neighbours.
Ring ring_over(const Hardware& hardware, const MeshSizes& sizes, AxisSet axes);
// Ranks that hold the same weights: data and context ranks.
Ring data_ring(const Hardware& hardware, const Workload& work);
// Ranks that hold the same experts, or parts of them: every `expert_ranks`-th of a pipeline stage.
Ring expert_data_ring(const Hardware& hardware, const Workload& work);

// An all-gather or reduce-scatter of `bytes` in total over the ring; an all-reduce is one of each.
double gather_seconds(const Hardware& hardware, const Software& software, const Ring& ring, double bytes);

// An all-gather of all `weights` over the ranks that shard them, at `bytes_of_each` bytes per weight.
double gather_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                      const HeldWeights& weights, double bytes_of_each);
// The reduce-scatter of their gradients over the same ranks and, if these are a group of --zero-group-size, the
// all-reduce of a rank's slice over the groups.
double scatter_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                       const HeldWeights& weights, double bytes_of_each);

// A message of `bytes` from a stage to the next.
double message_seconds(const Hardware& hardware, const Workload& work, double bytes);

}  // namespace trifold
