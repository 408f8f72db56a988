// Seconds of one micro-batch in each kind of block of a language model, on one rank: what the simulator and
// the closed form (step_time.h) are made from.
#pragma once

#include "plan/hardware.h"
#include "plan/software.h"
#include "plan/workload.h"

namespace trifold {

// Of one part of a step: forward, gradient of the input (with what is recomputed for it), gradient of the
// weights.
struct PartSeconds {
  double forward = 0;
  double input = 0;
  double weight = 0;

  double backward() const { return input + weight; }
  double all() const { return forward + input + weight; }
};

// `compute` is without tensor collectives, `tensor` what is left of them beside computation.
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
