// What the blocks of a language model compute for one sample, and send over the tensor axis.
#pragma once

#include <cstdint>

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// Of the matrix products of a transformer block. Each product with weights has one for the gradient of its
// input and one for that of the weights; each product of attention has two, both for its inputs.
BlockFlops flops_of_layer(const ModelConfig& config, RecomputeGranularity recompute);

// Of the products with the vocabulary: the loss over it computes its gradients in forward.
double flops_of_vocabulary_loss(const ModelConfig& config, int64_t padded_vocab);

// Of a transformer block.
TensorSums sums_of_layer(const MeshConfig& layout);
ContextNumbers context_of_layer(const ModelConfig& config, const MeshConfig& layout);

}  // namespace trifold
