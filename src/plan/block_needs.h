// Memory that a pipeline stage needs for one micro-batch, and the weights it holds, as linear functions of the number
// of its layers: for estimates of thousands of layouts of one model (plan/layout_memory.h).
//
// The functions are measured: RankLayout dry-runs three stages with one and with two layers, once for each combination
// of tensor ranks, micro-batch and recomputation. Each kind of layer (config/fields/layer_kinds.h) is dry-run separately. Only
// the last stage depends on the parts of the head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "config/fields/layer_kinds.h"
#include "core/memo.h"
#include "layout/run_spec.h"

namespace trifold {

// What follows the forward of a stage's layers: a whole B; I and W; or nothing, because neither they nor anything before
// them is trained.
enum class LayerBackward : uint8_t { Whole, Split, None };

// A quantity of a stage with n layers.
struct PerLayers {
  double none = 0;   // for a stage without layers
  double layer = 0;  // added by each layer
  double of(double layers) const { return none + layers * layer; }
};

// Bytes of a stage for one micro-batch, as ActivationMemory counts them (pipeline/stage_memory.h).
struct StageNeeds {
  PerLayers keep;     // tensors kept from forward until the weight gradients
  PerLayers held;     // gradients that I leaves for W
  PerLayers flow;     // gradient arenas of backward, reused from layer to layer
  PerLayers scratch;  // temporaries, reused from layer to layer
  PerLayers beside;   // temporaries of a forward paired with a backward
};

// Elements on a rank: all weights, and the parts of them that are of experts, that are trained and that memory holds
// quantized, with the bytes of the last.
struct StageWeights {
  PerLayers weights, experts, trained, quantized, quantized_bytes;
};

// `first` is a stage with the embedding, `middle` one with layers only, `last` one with all `parts` of the head.
struct BlockNeeds {
  StageNeeds first, middle, last;
  double message = 0;  // bytes of an activation sent between stages
  int parts = 1;

  // The needs of stage `index` of `stages` (at least 1), with `heads` parts of the head.
  StageNeeds stage(int index, int stages, int heads) const;
};
struct BlockWeights {
  StageWeights first, middle, last;
  double tied = 0;  // elements of the weight that the embedding and the whole head share; 0: none
  int parts = 1;
  bool tied_apart = false;  // ParamSpec::added_in_parts of that weight

  StageWeights stage(int index, int stages, int heads) const;
};

// A cache of BlockNeeds and BlockWeights for layouts of one model. Thread-safe.
class BlocksOfModel {
 public:
  // The model is taken as if all layers were of the kind `kind`, with or without a backward. `run` is resolved except for
  // options that do not affect memory.
  const BlockNeeds& needs(const RunSpec& run, LayerBackward backward, size_t kind);
  const BlockWeights& weights(const RunSpec& run, size_t kind);

  // The kinds of layers of the model.
  const LayerKinds& kinds(const RunSpec& run);

 private:
  // Numbers of tensor, context, expert and expert tensor ranks and of parts of the head; the kind of layer.
  using MeshKey = std::tuple<int, int, int, int, int, size_t>;
  using NeedsKey = std::tuple<MeshKey, ContextExchange, int64_t, bool, RecomputeGranularity, LayerBackward>;

  MeshKey mesh_key(const RunSpec& run, size_t kind);
  RunSpec with_one_kind(RunSpec run, size_t kind);

  Memo<std::tuple<>, LayerKinds> kinds_;
  Memo<MeshKey, BlockWeights> weights_;
  Memo<NeedsKey, BlockNeeds> needs_;
};

}  // namespace trifold
