// Seconds of one micro-batch in each kind of block of a language model, on one rank: the common input of the simulator
// and the closed form (step_time.h).
#pragma once

#include "plan/forecast/hardware.h"
#include "plan/forecast/software.h"
#include "plan/forecast/workload.h"

namespace trifold {

// Seconds of a micro-batch's three parts: forward, gradient of the input (with recomputation), gradient of the weights.
struct PartSeconds {
  double forward = 0;
  double input = 0;
  double weight = 0;

  double backward() const { return input + weight; }
  double all() const { return forward + input + weight; }
};

// `compute` is without collectives; `tensor` and `context` are the parts of the collectives over these axes that do not
// overlap with computation, `context_hidden` the part of the latter that does.
struct BlockCost {
  PartSeconds compute;
  PartSeconds tensor;
  PartSeconds context, context_hidden;
  // The part of `tensor` that the other half of a pair can hide: rows of experts that travel once and in one round,
  // less the time by which they would slow down the computation next to them.
  PartSeconds rows = {};
  PartSeconds all() const;
  BlockCost times(double factor) const;
};

// `plain_layer` is a layer without experts, where others have some; otherwise the same as `layer`.
struct BlockCosts {
  BlockCost embedding, layer, head, plain_layer;
};

// Reads whether there are plain layers from work.stage_plain.
BlockCosts block_costs(const Hardware& hardware, const Software& software, const Workload& work);

}  // namespace trifold
