// WholeLinear: y = x W^T + b, or without b, with a weight that every rank of the tensor axis holds whole. For the small products of an
// output head, whose outputs are normalised next and would have to be gathered if they were cut
// (tensor_parallel/linear.h). Under sequence parallelism each rank has its own rows, and its gradients are partial
// sums.
#pragma once

#include <optional>
#include <string>

#include "nn/layer.h"

namespace trifold {

class WholeLinear final : public Layer {
 public:
  // Parameters <name>.weight [out, in] and, with `bias`, <name>.bias [out].
  WholeLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init,
              bool bias = true);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, in] -> [R, out]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, out] -> [R, in]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  std::string name_;
  ParamId weight_;
  std::optional<ParamId> bias_;
  SlotId x_, dy_;
};

}  // namespace trifold
