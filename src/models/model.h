// Model: a list of blocks. A block is the unit a pipeline can be cut at, gradients are reduced by, and memory
// is counted by; its layer is const after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/layer.h"

namespace trifold {

struct Block {
  std::unique_ptr<Layer> layer;
  int slots = 0;     // tensors it saves for one micro-batch
  double flops = 0;  // of matrix products in one forward of one sample
  double cost = 0;   // of one forward of one sample, in flops: what stages are balanced by
};

struct Model {
  ParamList params;
  std::vector<Block> blocks;  // first reads tokens, last computes the loss

  // An activation between two blocks has 1 / row_parts of the micro-batch's rows on this rank: more than 1
  // under sequence parallelism.
  int row_parts = 1;

  // Matrix-product flops of one training step per sample: forward plus twice that for backward. Causal
  // attention counts half of its square, the padded vocabulary counts whole, recomputation does not count
  // (Megatron-LM's convention).
  double train_flops_per_sample() const;
  std::vector<double> block_costs() const;
};

}  // namespace trifold
