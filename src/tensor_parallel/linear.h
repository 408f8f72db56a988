// Linear layers cut over the tensor axis (Shoeybi et al., "Megatron-LM", arXiv 1909.08053). With one rank on
// that axis they are the plain layer; there is no other linear layer. Weights are [out, in], y = x W^T + b.
//
// ColumnLinear cuts the outputs: x is whole on every rank, y is this rank's part; in backward dx is summed
// over the axis. RowLinear cuts the inputs: x is this rank's part; y is summed over the axis, the bias is
// added once.
#pragma once

#include <string>

#include "nn/layer.h"

namespace trifold {

class ColumnLinear final : public Layer {
 public:
  // Parameters <name>.weight of shape `groups` x `out` x `in` (no first dim when groups is 1) and <name>.bias
  // without the last dim; each group's outputs are cut over the axis, so that packed projections stay aligned
  // (q, k, v).
  ColumnLinear(BlockBuilder& builder, const std::string& name, int64_t groups, int64_t out, int64_t in,
               Init init);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, in] -> [R, groups * out/tp]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, groups * out/tp] -> [R, in]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  ParamId weight_, bias_;
  SlotId x_, dy_;
};

class RowLinear final : public Layer {
 public:
  // Parameters <name>.weight [out, in], its `in` cut over the axis, and <name>.bias [out], whole.
  RowLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, in/tp] -> [R, out]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, out] -> [R, in/tp]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  ParamId weight_, bias_;
  SlotId x_, dy_;
};

}  // namespace trifold
