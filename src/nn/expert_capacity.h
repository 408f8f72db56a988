// Capacity of experts: how many tokens of a sequence an expert takes (Lepikhin et al., "GShard", arXiv 2006.16668; Fedus
// et al., "Switch Transformer", arXiv 2101.03961). Choices beyond it are dropped: they add nothing to their tokens, get no
// gradient, and are not computed. The gates of the other choices stay as they are.
//
// Capacity is counted over each whole sequence, in training steps alone: so the same choices are dropped on every
// mesh and with every micro-batch, and evaluation drops none. (Megatron-LM counts it over the tokens of a rank.)
#pragma once

#include <cstdint>

#include "ops/experts.h"

namespace trifold {

struct ExpertCapacity {
  double factor = 0;  // of the mean number of tokens per expert; 0: no choice is dropped
  KeptChoices kept = KeptChoices::LargestGates;
};

// ceil(factor * tokens * choices / experts), at most `tokens`, of a sequence of so many tokens that choose so many of the
// experts each. A product that is a whole number but for the rounding of `factor` is not rounded up.
int64_t expert_capacity(double factor, int64_t tokens, int64_t choices, int64_t experts);

}  // namespace trifold
