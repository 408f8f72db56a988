// The layers that are the same on every rank of the tensor axis: normalisation, activation, dropout,
// attention core. R = rows of the micro-batch (samples * positions) that are here, C = width.
#pragma once

#include <string>
#include <utility>

#include "nn/layer.h"

namespace trifold {

// y = (x - mean) * rstd * gain + bias over the last dim. Parameters <name>.gain and <name>.bias, [C].
class LayerNorm final : public Layer {
 public:
  LayerNorm(BlockBuilder& builder, const std::string& name, int64_t width, double eps);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  // Forward into a `y` [R, C] of the caller's; the statistics are in run.keep.
  void forward_to(Run& run, Tensor y, Tensor x, Saved& saved) const;
  // The forward of `saved`'s input once more: y and the saved statistics, in run.keep.
  Tensor repeat(Run& run, Saved& saved) const { return forward(run, saved[x_], saved); }

 private:
  std::string name_;
  double eps_;
  ParamId gain_, bias_;
  SlotId x_, mean_, rstd_, dy_;
};

// y = gelu(x), tanh form.
class Gelu final : public Layer {
 public:
  Gelu(BlockBuilder& builder, std::string name) : name_(std::move(name)), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // may overwrite dy
  void backward_weight(Run&, Saved&) const override {}
  Tensor repeat(Run& run, Saved& saved) const { return forward(run, saved[x_], saved); }

 private:
  std::string name_;
  SlotId x_;
};

// y = residual + dropout(x). The mask is keyed by (seed, name, global sample, position, column): it repeats
// itself in backward without being saved, and is the same on every mesh. The residual's gradient is dy
// itself; `backward_input` gives the gradient of x, which is dy where nothing is dropped.
class DropoutAdd {
 public:
  DropoutAdd(BlockBuilder& builder, const std::string& name, double probability)
      : name_(name),
        probability_(probability),
        row_part_(builder.row_part()),
        key_(philox_key(builder.seed(), name)) {}
  Tensor forward(Run& run, Tensor residual, Tensor x) const;  // [R, C], [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy) const;           // [R, C] -> [R, C]

 private:
  Dropout mask(const Run& run, Tensor x) const;

  std::string name_;
  double probability_;
  int row_part_;
  PhiloxKey key_;
};

// Causal softmax attention over packed projections, [R, 3 * heads * head_dim] -> [R, heads * head_dim]. Holds
// the heads of this rank; `global_heads` of all ranks of the tensor axis.
class AttentionCore final : public Layer {
 public:
  AttentionCore(BlockBuilder& builder, const std::string& name, int64_t global_heads, int64_t head_dim,
                double dropout);
  Tensor forward(Run& run, Tensor qkv, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dout, Saved& saved) const override;
  void backward_weight(Run&, Saved&) const override {}

 private:
  Attention shape(const Run& run) const;

  std::string name_;
  int64_t global_heads_, heads_, first_head_, head_dim_;
  double dropout_;
  PhiloxKey key_;
  SlotId qkv_, out_, lse_;
};

}  // namespace trifold
