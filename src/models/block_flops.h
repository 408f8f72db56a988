// The flops of a language model's blocks for one sample, and their traffic over the tensor and context axes.
#pragma once

#include <cstdint>

#include "config/fields/config.h"
#include "models/model.h"

namespace trifold {

// Flops of the matrix products of a transformer block. Each product with weights has one for the gradient of its input
// and one for that of the weights; each product of attention has two, both for its inputs.
BlockFlops flops_of_layer(const ModelConfig& config, const MeshConfig& layout = {});

// Flops of the products with the vocabulary, whose loss computes its gradients in the forward pass.
double flops_of_vocabulary_loss(const ModelConfig& config, int64_t padded_vocab);

// Tensor collectives of a transformer block.
TensorSums sums_of_layer(const ModelConfig& config, const MeshConfig& layout);
ContextNumbers context_of_layer(const ModelConfig& config, const MeshConfig& layout);
// The threads that compute attention on a rank: a device computes all heads at once.
int attention_threads(const MeshConfig& layout);
// The groups of key heads that a rank gathers over the context axis one after the other (nn/context/gathered_keys.h),
// and how far an exchange over that axis can overlap with attention.
int gathered_groups(const ModelConfig& config, const MeshConfig& layout);
Overlap context_overlap(const ModelConfig& config, const MeshConfig& layout);
ExpertNumbers experts_of_layer(const ModelConfig& config, const MeshConfig& layout);

}  // namespace trifold
