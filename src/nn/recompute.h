// Recompute: trades time for memory (Chen et al., "Training deep nets with sublinear memory cost", arXiv
// 1604.06174). Forward keeps only the input and the output of the wrapped layer; backward repeats its
// forward. Tensors kept by that repetition are scratch within a whole backward; if the two halves run separately,
// they are in run.flow. Dropout masks are keyed by counters and so repeat: the bits are those of a run without
// recomputation.
#pragma once

#include <memory>

#include "nn/layer.h"

namespace trifold {

class Recompute final : public Layer {
 public:
  // `layer` must have been constructed with the same builder. It must have an input and an output, and must
  // not add to the loss; to loss terms and counters (nn/reports.h) it adds only once.
  Recompute(BlockBuilder& builder, std::unique_ptr<Layer> layer)
      : layer_(std::move(layer)), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override { layer_->backward_weight(run, saved); }
  bool weight_backward_reads_weights() const override { return layer_->weight_backward_reads_weights(); }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;

 private:
  // Repeats the forward of the saved input for backward; the tensors it keeps are in `arena`.
  void repeat(Run& run, Saved& saved, Arena& arena) const;

  std::unique_ptr<Layer> layer_;
  SlotId x_;
};

}  // namespace trifold
