// Model: a list of blocks. A block is the unit a pipeline can be cut at, gradients are reduced by, and memory
// is counted by; its layer is const after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "nn/layer.h"

namespace trifold {

// What a block is in its model. Blocks of one kind have the same layers, so they take the same time.
enum class BlockKind : uint8_t { Embedding, Layer, Head };
constexpr size_t kBlockKinds = 3;

// "embedding", "layer" or "head": its name in files of measured times.
const char* name_of(BlockKind kind);

// Flops of one sample in F, I and W (schedule/action.h), recomputation included. Causal attention counts half
// of its square.
struct BlockFlops {
  double forward = 0;
  double input = 0;   // gradient of the input
  double weight = 0;  // gradient of the weights
};

// Whole activations [R, C] that are summed over the tensor axis in F, I and W of one micro-batch. A gather or
// a scatter alone is half a sum.
struct TensorSums {
  double forward = 0;
  double input = 0;
  double weight = 0;
};

// What a rank has a part in sending over the context axis for each position of a micro-batch, in F and in I,
// counted in numbers of which it sends (ranks - 1) / ranks itself; `sums` are gradients in the type of sums. And
// in how many collectives.
struct ContextNumbers {
  double forward = 0, input = 0, sums = 0;
  int forward_calls = 0, input_calls = 0;
};

struct Block {
  std::unique_ptr<Layer> layer;
  BlockKind kind = BlockKind::Layer;
  int slots = 0;     // tensors it saves for one micro-batch
  double flops = 0;  // of matrix products in one forward of one sample
  double cost = 0;   // of one forward of one sample, in flops: what stages are balanced by
  // What plans count: matrix products, and for an embedding, which has none, its moves as in `cost`.
  BlockFlops parts = {};
  TensorSums tensor_sums = {};
  ContextNumbers context = {};
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
  // The blocks that are layers, by their places in `blocks`.
  std::vector<int> layers() const;
  std::vector<double> block_costs() const;
};

}  // namespace trifold
