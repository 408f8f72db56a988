// Flops of the matrix products that the blocks of a language model compute for one sample.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace trifold {

// In F, I and W (pipeline/action.h), recomputation included. Causal attention counts half of its square.
struct BlockFlops {
  double forward = 0;
  double input = 0;   // gradient of the input
  double weight = 0;  // gradient of the weights
};

// Of a transformer block. Each product with weights has one for the gradient of its input and one for that of
// the weights; each product of attention has two, both for its inputs.
BlockFlops flops_of_layer(const ModelConfig& config, RecomputeGranularity recompute);

// Of the products with the vocabulary: the loss over it computes its gradients in forward.
double flops_of_vocabulary_loss(const ModelConfig& config, int64_t padded_vocab);

// Of the head, that of a task included.
BlockFlops flops_of_head(const ModelConfig& config, int64_t padded_vocab);

}  // namespace trifold
