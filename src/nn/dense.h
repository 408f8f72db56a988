// Layers of multilayer perceptrons, which every rank holds whole: a dense layer (product, bias and ReLU in one), a
// stack of dense layers, and the cross network of DCN V2. B = samples on this rank.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/layer.h"

namespace trifold {

// y = max(0, x W^T + b), or without the maximum; in training with dropout. Batch normalisation (nn/batch_norm.h)
// replaces b and is applied to x W^T, before the maximum. Parameters <name>.weight [out, in], <name>.bias [out] or,
// with batch normalisation, <name>.norm.*. backward_input adds the gradient of the bias, because it reads dy anyway.
// Dropout (Srivastava et al., JMLR 2014) is keyed by (layer, sample of the run, element), so it does not depend on the
// ranks.
class DenseLayer final : public Layer {
 public:
  struct Form {
    bool relu = true;
    bool first = false;  // dx is not needed: backward_input does not compute it and returns an empty tensor
    double dropout = 0;  // probability for elements of y; needs `relu`
    // With batch normalisation, its first column in the statistics of all layers; needs `relu`.
    std::optional<int64_t> norm = {};
  };
  DenseLayer(BlockBuilder& builder, const std::string& name, int64_t in, int64_t out, Form form);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [B, in] -> [B, out]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // may overwrite dy
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return true; }  // gradients of biases

 private:
  bool drops(const Run& run) const { return form_.dropout > 0 && run.training; }
  Tensor normalised(Run& run, const Tensor& x, Saved& saved) const;

  std::string name_;
  int64_t in_, out_;
  Form form_;
  PhiloxKey key_;
  ParamId weight_, bias_;
  SlotId x_, y_, dz_;
  std::optional<BatchNorm> norm_;
};

// A stack of dense layers named <name>.0, <name>.1, ...
class Mlp final : public Layer {
 public:
  // widths[0] is the width of the input. `linear_end`: the last layer has no ReLU. `first`: the gradient of the input
  // is not needed. `dropout` applies to the outputs of all layers except the last, `end_dropout` to the last. With
  // `norm`, all layers except the last have batch normalisation, and `norm` is the first column of the first layer's
  // statistics.
  Mlp(BlockBuilder& builder, const std::string& name, std::span<const int64_t> widths, bool linear_end,
      bool first, double dropout = 0, double end_dropout = 0, std::optional<int64_t> norm = {});
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return true; }  // gradients of biases

 private:
  std::vector<DenseLayer> layers_;
};

// x_{l+1} = x_0 * (W_l V_l x_l + b_l) + x_l by element, with V_l [rank, N] and W_l [N, rank] (Wang et al.,
// "DCN V2", WWW 2021, its low-rank form). Parameters <name>.<l>.v, <name>.<l>.w and <name>.<l>.bias.
class CrossNetwork final : public Layer {
 public:
  CrossNetwork(BlockBuilder& builder, const std::string& name, int64_t width, int64_t rank, int layers);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [B, N] -> [B, N]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // overwrites dy
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return true; }  // gradients of biases

 private:
  struct Part {
    std::string name;
    ParamId down, up, bias;
    SlotId x, low, u, du, dlow;
  };
  int64_t rank_;
  std::vector<Part> parts_;
};

}  // namespace trifold
