// Model: a list of blocks. The pipeline never cuts a block; gradients are reduced and memory is planned in whole
// blocks. A block's layer is const after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "nn/boundary.h"
#include "nn/layer.h"

namespace trifold {

// The role of a block in its model.
enum class BlockKind : uint8_t { Embedding, Layer, Head };
constexpr size_t kBlockKinds = 3;

// "embedding", "layer" or "head": its name in files of measured times.
const char* name_of(BlockKind kind);

struct Block {
  std::unique_ptr<Layer> layer;
  BlockKind kind = BlockKind::Layer;
  int slots = 0;          // tensors that it saves for one micro-batch
  size_t layer_kind = 0;  // index in layer_kinds (config/fields/layer_kinds.h), for a layer
  // Index of an earlier block with the same layers, shapes and backward; -1: none.
  int like = -1;
  BlockBackward backward = BlockBackward::All;
  Boundary output = {};
  CachedRows cached =
      {};  // kept of each position of a sequence that the model continues; a head caches nothing
};

struct Model {
  ParamList params;
  ReportList reports;
  std::vector<Block> blocks;  // the first reads tokens, the last computes the loss
  // The number of first blocks that look up tokens for the embedding, which follows them. Each is a stage of its own,
  // in addition to the stages into which the other blocks are cut (layout/cut_model.h).
  int lookups = 0;

  int later_labels = 0;  // how many of Batch::later_labels a training step reads

  // An activation between two blocks has 1 / row_parts of the micro-batch's rows on this rank; row_parts > 1 under
  // sequence parallelism.
  int row_parts = 1;
  // How context-parallel ranks cut samples, which depends on whether attention is causal. Batches are cut accordingly;
  // layers read the cut from the batch.
  RowCut row_cut = RowCut::BothEnds;

  // Sets Block::backward of all blocks from the parameters that are trained, and Block::like accordingly. Called once,
  // when the model is complete.
  void set_backward();
  // The number of first blocks without a backward.
  int blocks_without_backward() const;
  // Gives all blocks but the embedding a whole backward: for few layers that stand for others.
  void give_layers_backward();
  // Indices in `blocks` of the blocks that are layers.
  std::vector<int> layers() const;
  // What every block keeps of a position: [block].
  std::vector<CachedRows> cached_rows() const;
};

}  // namespace trifold
