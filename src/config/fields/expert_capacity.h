// The capacity of an expert, from --moe-expert-capacity-factor; what it means is said in nn/expert_capacity.h.
#pragma once

#include <cstdint>

namespace trifold {

// The capacity for a sequence of `tokens` tokens that choose `choices` experts each: ceil(factor * tokens * choices /
// experts), at most `tokens`. A product that is an integer within the rounding of `factor` is not rounded up.
int64_t expert_capacity(double factor, int64_t tokens, int64_t choices, int64_t experts);

}  // namespace trifold
