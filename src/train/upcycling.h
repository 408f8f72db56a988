// Upcycling (Komatsuzaki et al., arXiv 2212.05055): a mixture of experts begins with the weights of a model without
// experts, of whose feed-forward networks every expert is a copy. The weights of a token's experts sum to 1, so both
// models compute the same function, whatever the routers, which are newly initialised, choose.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/writer.h"

namespace trifold {

// The tensors to load from such a model's checkpoint into the weights of a mixture, which are `wanted`: boxes of the
// same memory, an expert's one by one under the name of the network it copies. Routers are left out.
std::vector<NamedTensor> wanted_of_dense(std::span<const NamedTensor> wanted);

}  // namespace trifold
