// The memory that the stages of a pipeline need for one micro-batch, and the weights that they hold, as functions of
// their layers: for estimates of thousands of layouts of one model (plan/layout_memory.h).
//
// Both are linear in the layers of a stage: RankLayout dry-runs three stages with one and with two layers, once for each
// tensor size, micro-batch and recomputation, and the rest is extrapolated; layers with experts and layers without are
// dry-run separately. Only the last stage depends on the parts of the head.
#pragma once

#include <cstdint>
#include <tuple>

#include "core/memo.h"
#include "layout/run_spec.h"

namespace trifold {

// A quantity of a stage with n layers.
struct PerLayers {
  double none = 0;   // for a stage without layers
  double layer = 0;  // added by each layer
  double of(double layers) const { return none + layers * layer; }
};

// Bytes for a micro-batch: what lives until the weight gradients, what an I leaves for its W, and what is used again from
// layer to layer, by a forward that takes turns with a backward too.
struct StageNeeds {
  PerLayers keep, held, flow, scratch, beside;
};

// Elements, those of experts among them.
struct StageWeights {
  PerLayers weights, experts;
};

// Needs of the first stage with the embedding, of a middle one, and of the last with all `parts` of the head.
struct BlockNeeds {
  StageNeeds first, middle, last;
  double message = 0;  // bytes
  int parts = 1;

  // Needs of stage `index` of `stages`, which may be the only one, with `heads` parts of the head.
  StageNeeds stage(int index, int stages, int heads) const;
};
struct BlockWeights {
  StageWeights first, middle, last;
  double tied = 0;  // elements of the weight that the embedding and the whole head share; 0: none
  int parts = 1;

  StageWeights stage(int index, int stages, int heads) const;
};

// For one model. Thread-safe.
class BlocksOfModel {
 public:
  // As if all layers had experts or, if `plain`, none did. `split`: backward is I and W. `run` is resolved except for
  // options that do not affect memory.
  const BlockNeeds& needs(const RunSpec& run, bool split, bool plain);
  const BlockWeights& weights(const RunSpec& run, bool plain);

 private:
  // Tensor, context, expert and expert tensor ranks, parts of the head; whether layers are plain.
  using MeshKey = std::tuple<int, int, int, int, int, bool>;
  using NeedsKey = std::tuple<MeshKey, ContextExchange, int64_t, bool, RecomputeGranularity, bool>;

  static MeshKey mesh_key(const RunSpec& run, bool plain);

  Memo<MeshKey, BlockWeights> weights_;
  Memo<NeedsKey, BlockNeeds> needs_;
};

}  // namespace trifold
