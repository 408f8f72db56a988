// The time of a training step in closed form, by which a search ranks layouts. The simulator (schedule/simulate.h) runs
// the same costs through the actions of a plan.
#pragma once

#include <utility>
#include <vector>

#include "plan/forecast/block_costs.h"
#include "plan/forecast/workload.h"

namespace trifold {

// Seconds of a step by part.
struct StepTime {
  double compute = 0;   // the slowest pipeline rank's computation
  double tensor = 0;    // tensor collectives that do not overlap
  double context = 0;   // context collectives that do not overlap
  double weights = 0;   // gathers of sharded weights that do not overlap
  double bubble = 0;    // waiting for other stages
  double messages = 0;  // messages between stages that do not overlap
  double data = 0;      // gradient sums and gathers of updated weights that do not overlap
  double update = 0;

  double all() const { return compute + tensor + context + weights + bubble + messages + data + update; }
};

// The parts in the order of the struct, with the names used in reports and JSON.
std::vector<std::pair<const char*, double>> named_parts(const StepTime& time);

// `work.stages` must have pipeline * chunks stages.
StepTime step_time(const Hardware& hardware, const Software& software, const Workload& work,
                   const BlockCosts& costs);

// The time that gathering sharded weights (ZeRO stage 3) adds to a layer of one micro-batch: an all-gather overlaps
// with the layer's forward; an all-gather and a reduce-scatter of gradients overlap with its backward. 0 without
// sharded weights.
struct GatherSeconds {
  double forward = 0, backward = 0;
  double all() const { return forward + backward; }
};
GatherSeconds layer_gathers(const Hardware& hardware, const Software& software, const Workload& work,
                            const BlockCost& layer);

// Seconds of one message between stages.
double stage_message_seconds(const Hardware& hardware, const Software& software, const Workload& work);

// Seconds of a step's gradient sums and weight gathers, of which `backward` seconds of the last backward can hide a
// part, and of its update, for a pipeline rank that holds `weights`.
double data_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                    const HeldWeights& weights, double backward);
double update_seconds(const Hardware& hardware, const Workload& work, const HeldWeights& weights);

}  // namespace trifold
