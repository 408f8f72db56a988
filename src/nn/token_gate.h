// TokenGate: the output of a network for each token is scaled by a logistic function of the token itself, as
// Qwen2-MoE's shared expert is (Yang et al., arXiv 2407.10671): y_t = s_t y_t with s = 1 / (1 + exp(-x w^T)).
//
// It is a router of one expert (ops/experts.h), whose operations it uses. Under sequence parallelism a rank gates its
// own rows.
#pragma once

#include <string>

#include "nn/layer.h"

namespace trifold {

class TokenGate {
 public:
  // The parameter <name>.weight [1, C].
  TokenGate(BlockBuilder& builder, const std::string& name, int64_t width, Init init);
  // Gates y [T, C] in place, by x [T, C]. Keeps a copy of y.
  void forward(Run& run, Tensor x, Tensor y, Saved& saved) const;
  // Returns the gradient of what was gated, [T, C] in run.flow.
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const;
  // After that: adds the gradient of x to dx [T, C].
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
