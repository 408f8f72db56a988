// TokenGate: scales a network's output for each token by a logistic function of the token, as for the shared expert of
// Qwen2-MoE (Yang et al., arXiv 2407.10671): y_t = s_t y_t with s = 1 / (1 + exp(-x w^T)).
//
// It uses the operations of a router with one expert (ops/experts.h). Under sequence parallelism a rank gates its own
// rows.
#pragma once

#include <string>

#include "nn/layer.h"

namespace trifold {

class TokenGate {
 public:
  // Parameter <name>.weight [1, C].
  TokenGate(BlockBuilder& builder, const std::string& name, int64_t width, Init init);
  // Scales y [T, C] in place by the gates of x [T, C]. Keeps a copy of y.
  void forward(Run& run, Tensor x, Tensor y, Saved& saved) const;
  // Returns the gradient of y as it was before scaling, [T, C] in run.flow.
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const;
  // Adds the gradient of x to dx [T, C]; called after backward_input.
  void add_input_gradient(Run& run, Tensor dx, const Saved& saved) const;
  void backward_weight(Run& run, Saved& saved) const;
  // Replaces the input that forward saved by a recomputed one, before backward_weight.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }

 private:
  std::string name_;
  ParamId weight_;
  int row_part_;
  SlotId x_, y_, logits_, gates_, chosen_, row_, dlogits_;
};

}  // namespace trifold
