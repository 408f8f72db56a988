// Model: a list of blocks. A block is never cut by the pipeline; gradients are reduced and memory is counted in whole
// blocks. Its layer is const after construction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "nn/layer.h"

namespace trifold {

// The role of a block in its model. Blocks of one kind have the same layers, so they take the same time.
enum class BlockKind : uint8_t { Embedding, Layer, Head };
constexpr size_t kBlockKinds = 3;

// "embedding", "layer" or "head": its name in files of measured times.
const char* name_of(BlockKind kind);

// Flops of one sample in F, I and W (schedule/action.h), recomputation included. Causal attention counts half of the T
// x T scores.
struct BlockFlops {
  double forward = 0;
  double input = 0;   // gradient of the input
  double weight = 0;  // gradient of the weights
  // The part of I and W together that a whole backward does once.
  double shared = 0;
};

// Whole activations [R, C] that are summed over the tensor axis in F, I and W of one micro-batch. A gather or
// a scatter alone is half a sum.
struct TensorSums {
  double forward = 0;
  double input = 0;
  double weight = 0;
  double shared = 0;  // as in BlockFlops
};

// The fractions of an exchange and of the computation next to it that can overlap.
struct Overlap {
  double exchange = 0, computation = 0;
  // The part of `seconds` that is hidden behind `beside` seconds of the other work.
  double hidden_of(double seconds, double beside) const {
    return std::min(exchange * seconds, computation * beside);
  }
};

// What routers of context ranks gather of each other (nn/experts.h), in `forward` passes of F and `input` of I: `choices`
// of each position, a 32-bit number and a gate in the type of sums, and 32-bit counts, so many for each sample and for a
// micro-batch. `calls` collectives do it.
struct RouterNumbers {
  double choices = 0, sample_counts = 0, micro_counts = 0;
  int calls = 0, forward = 0, input = 0;
};

// Context-axis traffic of a rank in F and I, in numbers per position of a micro-batch, of which the rank itself sends
// (ranks - 1) / ranks, and the number of collectives or of rounds of a ring. `sums` are gradients in the type of sums.
// The traffic overlaps with attention as far as `hidden` says: how much of each.
struct ContextNumbers {
  double forward = 0, input = 0, sums = 0;
  int forward_calls = 0, input_calls = 0;
  Overlap hidden = {};
  RouterNumbers routers = {};  // with several context ranks
};

// The same over the expert axis: times that a token's rows go to its experts and come back, `choices` rows of `width`
// numbers, and gates that travel. The exchange of the numbers of rows is left out; the
// routers' numbers that tensor ranks gather are included.
struct ExpertNumbers {
  double choices = 0, width = 0;
  int forward_out = 0, forward_back = 0, input_out = 0, input_back = 0, weight_out = 0;
  double forward_gates = 0, input_gates = 0;  // in the type of sums
  double first_flops = 0, second_flops = 0;   // of the experts' products in one forward of a sample
  int forward_calls = 0, input_calls = 0, weight_calls = 0;
  double tensor_forward = 0, tensor_input = 0;  // in the type of sums
};

struct Block {
  std::unique_ptr<Layer> layer;
  BlockKind kind = BlockKind::Layer;
  int slots = 0;     // tensors it saves for one micro-batch
  double flops = 0;  // of matrix products in one forward of one sample
  double cost = 0;   // of one forward of one sample, in flops: what stages are balanced by
  // Flops as plans count them: matrix products; for an embedding, which has none, its data movement as in `cost`.
  BlockFlops parts = {};
  TensorSums tensor_sums = {};
  ContextNumbers context = {};
  ExpertNumbers experts = {};
  bool plain = false;  // a layer without experts, of a model in which others have some
  // Numbers for each row of a micro-batch that travel with the block's output (nn/row_numbers.h).
  int row_numbers = 0;
};

struct Model {
  ParamList params;
  std::vector<Block> blocks;  // first reads tokens, last computes the loss
  // The first blocks that look up tokens for the embedding, which follows them; each is a stage of its own, outside the
  // cut into stages (layout/cut_model.h).
  int lookups = 0;

  // An activation between two blocks has 1 / row_parts of the micro-batch's rows on this rank; above 1 under sequence
  // parallelism.
  int row_parts = 1;
  // How context-parallel ranks cut samples: by whether attention is causal. Batches are cut accordingly, and all else
  // asks the batch.
  RowCut row_cut = RowCut::BothEnds;

  // Matrix-product flops of one training step per sample: forward plus twice that for backward. By Megatron-LM's
  // convention causal attention counts half of the T x T scores, the padded vocabulary counts in full, and
  // recomputation does not count.
  double train_flops_per_sample() const;
  // The blocks that are layers, by their places in `blocks`.
  std::vector<int> layers() const;
  std::vector<double> block_costs() const;
};

}  // namespace trifold
