// Recompute: activation checkpointing of one layer (Chen et al., "Training deep nets with sublinear memory cost",
// arXiv 1604.06174). Forward keeps only the input and the output of the wrapped layer; backward repeats its forward.
// Tensors kept by the repeated forward are scratch within a whole backward; if backward_input and backward_weight run
// separately, they are in run.flow. Dropout masks are keyed by counters and repeat, so the bits are the same as without
// recomputation.
#pragma once

#include <memory>

#include "nn/layer.h"

namespace trifold {

class Recompute final : public Layer {
 public:
  // `layer` must be constructed with the same builder, have an input and an output, and not add to the loss. Loss terms
  // and counters (nn/reports.h) are only added by the first forward.
  Recompute(BlockBuilder& builder, std::unique_ptr<Layer> layer)
      : layer_(std::move(layer)), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override { layer_->backward_weight(run, saved); }
  bool adds_in_backward_input() const override { return layer_->adds_in_backward_input(); }
  bool weight_backward_reads_weights() const override { return layer_->weight_backward_reads_weights(); }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;

 private:
  // Repeats the forward of the saved input for backward; the tensors it keeps are in `arena`.
  void repeat(Run& run, Saved& saved, Arena& arena) const;

  std::unique_ptr<Layer> layer_;
  SlotId x_;
};

}  // namespace trifold
