// ExpertBiases: the biases of the two projections of experts (nn/experts.h), which make an expert's output
//   down_e(activation(up_e(x) + b_up[e])) + b_down[e].
//
// Rows are sorted by expert, so a bias is a grouped product with one column: row r of expert e is b[e] times a number,
// 1 for b_up and the row's gate for b_down, because gates are applied before the second projection. The gradients of
// biases and gates are products of the same kind (OpTable::expert_product).
//
// If experts are cut over the tensor axis of experts, b_up is cut like the weights. The outputs of its ranks are partial
// sums, so the first of them adds b_down, and with it the bias's part of the gradient of gates; all of these ranks hold
// b_down, and compute the same gradient of it.
#pragma once

#include <string>

#include "nn/layer.h"

namespace trifold {

class ExpertBiases {
 public:
  // Parameters <name>.up.bias [E, F], or with a gate [E, 2, F] = [gate | up], and <name>.down.bias [E, C]. They are
  // sharded along E over the expert axis.
  ExpertBiases(BlockBuilder& builder, const std::string& name, int64_t experts, int64_t width, int64_t ffn,
               bool gated);

  // Rows [R, ...] sorted by the local experts, as in nn/experts.h: the first row of each expert, and the gates [choices]
  // of the rows in the order of choices, with the row of each choice.
  struct Rows {
    Tensor first, gates, row;
  };

  // inner [R, F or 2F] += b_up
  void add_up(Run& run, Tensor inner, Tensor first) const;
  // y [R, C] += gate * b_down
  void add_down(Run& run, Tensor y, const Rows& rows) const;
  // dgates += dy . b_down, in the order of choices; nothing for rows of dropped choices.  dy [R, C]
  void add_gate_gradients(Run& run, Tensor dgates, Tensor dy, const Rows& rows) const;
  // Add the gradients of b_up, from dinner [R, F or 2F], and of b_down, from dy [R, C].
  void add_up_gradient(Run& run, Tensor dinner, Tensor first) const;
  void add_down_gradient(Run& run, Tensor dy, const Rows& rows) const;

 private:
  ParamId up_, down_;
  bool adds_down_;  // whether this rank adds b_down
};

}  // namespace trifold
