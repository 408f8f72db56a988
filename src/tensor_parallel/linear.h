// Linear layers cut over the tensor axis (Shoeybi et al., "Megatron-LM", arXiv 1909.08053). With one rank on that axis
// they are ordinary linear layers. Weights are [out, in]; y = x W^T + b, or without b.
//
// ColumnLinear enters a region (tensor_parallel/regions.h) and cuts the outputs. RowLinear leaves the region and cuts
// the inputs: y is a sum over the axis, and the bias is added once. Ro = R rows, or R/tp under sequence parallelism.
//
// Both have low-rank adapters (tensor_parallel/low_rank.h) if the builder says so; the layer itself is then frozen.
#pragma once

#include <optional>
#include <string>

#include "nn/layers.h"
#include "nn/product_weight.h"
#include "nn/residual.h"
#include "tensor_parallel/low_rank.h"
#include "tensor_parallel/regions.h"

namespace trifold {

// The parameters of a linear layer.
struct LinearParameters {
  ParamId weight;
  std::optional<ParamId> bias;
};

class ColumnLinear final : public Layer {
 public:
  // Parameters <name>.weight [groups, out, in] (no first dim if groups is 1) and, with a bias, <name>.bias without the
  // last dim. Each group's outputs are cut over the axis, so that packed projections (gate and up) stay aligned.
  ColumnLinear(BlockBuilder& builder, const std::string& name, int64_t groups, int64_t out, int64_t in,
               Init init, bool bias = true);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [Ro, in] -> [R, groups * out/tp]
  Tensor backward_input(Run& run, Tensor dy,
                        Saved& saved) const override;  // [R, groups * out/tp] -> [Ro, in]
  void backward_weight(Run& run, Saved& saved) const override;
  // Overlaps the collectives with the products.
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  // Replaces the input that forward saved by a recomputed one, before the backward parts.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }
  // activation(y), fused into one operation if the table has one; narrow if `in_8bit` (Run::take). Keeps the same tensors
  // as the forwards of both layers, the activation's in `keep`.
  Tensor forward_activated(Run& run, Arena& keep, const Activation& activation, Tensor x, Saved& saved,
                           bool in_8bit = false) const;
  // Whether x and dy may be narrow (ops/narrow.h): nothing but products and the bias reads them, and no rows are gathered.
  bool reads_narrow(const Run& run) const { return run.narrow && !adapters_.any() && !region_.slices(); }
  LinearParameters parameters() const { return {weight_.id(), bias_}; }
  // Whether the backward reads the input: not if the layer is frozen and has no adapters.
  bool reads_input() const { return reads_input_; }

 private:
  Tensor take_output(Run& run, Arena& from, Tensor x) const;

  std::string name_;
  Region region_;
  ProductWeight weight_;
  std::optional<ParamId> bias_;
  LowRank adapters_;
  bool reads_input_;
  SlotId x_, dy_;
};

class RowLinear final : public Layer {
 public:
  // Parameters <name>.weight [out, in], with `in` cut over the axis, and, with a bias, <name>.bias [out], which every
  // rank holds whole.
  RowLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init,
            bool bias = true);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [R, in/tp] -> [Ro, out]
  // As forward, with the result in `output`.
  Tensor forward_in(Run& run, Arena& output, Tensor x, Saved& saved) const;
  // The sum of `add`, whose x is forward(x), in `output`.
  Tensor forward_added(Run& run, Arena& output, const ResidualAdd& add, Tensor residual, Tensor x,
                       Saved& saved) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [Ro, out] -> [R, in/tp]
  void backward_weight(Run& run, Saved& saved) const override;
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }  // as in ColumnLinear
  // backward_input followed by the backward of `activation`, whose output is this layer's input; narrow if `in_8bit`.
  Tensor backward_input_activated(Run& run, const Activation& activation, Tensor dy, Saved& saved,
                                  bool in_8bit = false) const;
  bool reads_narrow(const Run& run) const { return run.narrow && !adapters_.any(); }  // as in ColumnLinear
  LinearParameters parameters() const { return {weight_.id(), bias_}; }
  bool reads_input() const { return reads_input_; }  // as in ColumnLinear

 private:
  std::string name_;
  Region region_;
  ProductWeight weight_;
  std::optional<ParamId> bias_;
  LowRank adapters_;
  bool reads_input_;
  SlotId x_, dy_;
};

}  // namespace trifold
