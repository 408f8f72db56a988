// Upcycling (Komatsuzaki et al., arXiv 2212.05055): a mixture of experts starts from a dense model, and every expert is
// a copy of its layer's feed-forward network. A token's expert weights sum to 1, so both models compute the same
// function for any choice of the routers, which are newly initialised.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/writer.h"

namespace trifold {

// The tensors to load from a dense model's checkpoint into the weights of a mixture, given as `wanted`: boxes of the
// same memory, each expert separately under the name of the network it copies. Routers are left out.
std::vector<NamedTensor> wanted_of_dense(std::span<const NamedTensor> wanted);

}  // namespace trifold
