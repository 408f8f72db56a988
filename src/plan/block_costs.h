// Seconds of one micro-batch in each kind of block of a language model, on one rank: the common input of the simulator
// and the closed form (step_time.h).
#pragma once

#include "plan/hardware.h"
#include "plan/software.h"
#include "plan/workload.h"

namespace trifold {

// Seconds of a micro-batch's three parts: forward, gradient of the input (with recomputation), gradient of the weights.
struct PartSeconds {
  double forward = 0;
  double input = 0;
  double weight = 0;

  double backward() const { return input + weight; }
  double all() const { return forward + input + weight; }
};

// `compute` is without tensor collectives; `tensor` is the part of these that does not overlap with computation.
struct BlockCost {
  PartSeconds compute;
  PartSeconds tensor;
  PartSeconds all() const;
};

struct BlockCosts {
  BlockCost embedding, layer, head;
};

BlockCosts block_costs(const Hardware& hardware, const Software& software, const Workload& work);

}  // namespace trifold
