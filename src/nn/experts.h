// Experts: the feed-forward part of a mixture of experts (Shazeer et al., arXiv 1701.06538; Fedus et al.,
// "Switch Transformer", arXiv 2101.03961; Jiang et al., "Mixtral", arXiv 2401.04088). A router gives every
// token to k of E feed-forward networks, whose outputs it weighs and adds up:
//   z = x Wr^T,  y_t = sum over the choices i of t of g_ti down_i(activation(up_i(x_t))).
//
// No token is dropped, and every rank holds all experts, so a micro-batch of T tokens always has T k rows and
// memory is known before the run. Rows are sorted by expert and meet one product with all experts' weights;
// an expert may have none. The gates are applied before the second projection, which keeps its result from
// having to be saved. What only moves rows is done again in backward: gathered inputs, and activations.
//
// Besides the loss of the model, the router has two losses for each token, with the same weights as the
// model's loss (OpTable::router_losses): `balance`, counted over the token's own sequence, so that no mesh or
// micro-batch changes it, and `z`.
#pragma once

#include <string>

#include "nn/layers.h"

namespace trifold {

struct ExpertsShape {
  int64_t experts = 0;  // E; 0 if one network serves all tokens
  Router router;
  RouterLosses losses;
};

class Experts final : public Layer {
 public:
  // Parameters <name>.router.weight [E, C], <name>.experts.up.weight [E, F, C], or [E, 2F, C] = [gate | up]
  // of Swiglu, and <name>.experts.down.weight [E, C, F]. Throws where the tensor axis has more than one rank.
  Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
          int64_t ffn, ActivationKind activation, Init up, Init down);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [T, C] -> [T, C]
  // residual + (forward(x) + plus) through the dropout of `add`, in run.output(); a `plus` without dims is
  // left out.
  Tensor forward_added(Run& run, const DropoutAdd& add, Tensor residual, Tensor x, Tensor plus,
                       Saved& saved) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [T, C] -> [T, C]
  void backward_weight(Run& run, Saved& saved) const override;
  // Replaces the input that forward saved by a recomputed one, before backward_weight.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }

 private:
  // What is kept of an input x but the output.
  void take_kept(Run& run, Tensor x, Saved& saved) const;
  // The forward of the input that was kept, into y [T, C].
  void mix(Run& run, Tensor y, Saved& saved) const;
  // Gates, the order of rows, and the router's losses, of saved[logits_].
  void route(Run& run, Saved& saved) const;
  // activation(u), in `to` [T k, F].
  void activate(Run& run, Tensor to, Saved& saved) const;
  Tensor take_rows(Run& run, const Saved& saved, int64_t columns) const;  // from scratch

  std::string name_;
  ExpertsShape shape_;
  int64_t ffn_;
  ActivationKind activation_;
  ParamId router_, up_, down_;
  SlotId x_, logits_, gates_, chosen_, counts_, first_, row_, token_, inner_, dy_, dlogits_, dinner_;
};

}  // namespace trifold
