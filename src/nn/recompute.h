// Recompute: trades time for memory (Chen et al., "Training deep nets with sublinear memory cost", arXiv
// 1604.06174). Forward keeps only the input and the output of the wrapped layer; backward runs its forward
// again. What that keeps is scratch within a whole backward; between the two halves apart it lives in
// run.flow. Dropout repeats itself because its masks are keyed by counters, so the bits are those of a run
// without recomputation.
#pragma once

#include <memory>

#include "nn/layer.h"

namespace trifold {

class Recompute final : public Layer {
 public:
  // `layer` was constructed with the same builder. It has an input and an output, and adds to no loss but
  // those of routers (Run::router_sums), which are added to once.
  Recompute(BlockBuilder& builder, std::unique_ptr<Layer> layer)
      : layer_(std::move(layer)), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override { layer_->backward_weight(run, saved); }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;

 private:
  // Forward of the saved input for backward; what it keeps is in `arena`.
  void repeat(Run& run, Saved& saved, Arena& arena) const;

  std::unique_ptr<Layer> layer_;
  SlotId x_;
};

}  // namespace trifold
