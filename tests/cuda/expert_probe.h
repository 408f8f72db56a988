// Products of experts by warps and by warpgroups (ops/cuda/kernels/kernels.h) on the first GPU: whether each gives the
// library's products, to the last bit, and how fast it is.
#pragma once

namespace trifold::probe {

// Prints a line for each product. Returns 1 if one is wrong.
int run_expert_probe();

}  // namespace trifold::probe
