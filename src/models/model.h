// Model: a list of blocks. A block is never cut by the pipeline; gradients are reduced and memory is counted in whole
// blocks. Its layer is const after construction.
#pragma once

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

struct Block {
  std::unique_ptr<Layer> layer;
  BlockKind kind = BlockKind::Layer;
  int slots = 0;       // tensors it saves for one micro-batch
  bool plain = false;  // a layer without experts, of a model in which others have some
  int like = -1;       // an earlier block with the same layers and shapes; -1: none
  // Numbers for each row of a micro-batch that travel with the block's output (nn/row_numbers.h).
  int row_numbers = 0;
};

struct Model {
  ParamList params;
  ReportList reports;
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

  // The blocks that are layers, by their places in `blocks`.
  std::vector<int> layers() const;
};

}  // namespace trifold
