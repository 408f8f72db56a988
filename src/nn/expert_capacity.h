// Capacity of experts: the number of tokens of a sequence that an expert computes (Lepikhin et al., "GShard", arXiv
// 2006.16668; Fedus et al., "Switch Transformer", arXiv 2101.03961). Further choices of the expert are dropped: they
// are not computed, add nothing to their tokens and get no gradient. The gates of a token's other choices do not
// change.
//
// Capacity applies to each whole sequence and to training steps alone, so the same choices are dropped on every mesh
// and for every micro-batch size, and evaluation drops none. (Megatron-LM counts it over the tokens of a rank.)
#pragma once

#include "config/fields/expert_capacity.h"
#include "ops/experts.h"

namespace trifold {

struct ExpertCapacity {
  double factor = 0;  // capacity / mean number of tokens per expert; 0: no choice is dropped
  KeptChoices kept = KeptChoices::LargestGates;
};

}  // namespace trifold
