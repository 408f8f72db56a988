// LabelTowers: the upper part of a model that predicts several labels: layers shared by all labels and, for each label,
// a tower, an MLP that ends in the label's logit. B = samples on this rank, L = labels, N = width of the input.
//
// Without experts the shared layers are one stack (a shared bottom: Caruana, "Multitask learning", Machine Learning
// 1997), and all towers read its output; without shared layers they read x itself:
//
//   h = shared(x);  z_l = tower_l(h)
//
// With E experts (multi-gate mixture of experts, MMoE: Ma et al., KDD 2018) each expert is such a stack, and the tower
// of a label reads the mean of their outputs, weighted by the label's gate, a softmax of a linear function of x:
//
//   p_l = softmax(G_l x);  h_l = sum over e of p_l[e] expert_e(x);  z_l = tower_l(h_l)
//
// Parameters: top.<i> of the shared stack, or expert.<e>.<i>; gate.<label>.weight [E, N]; tower.<label>.<i>. All layers
// except the last of each tower have a ReLU and, in training, dropout.
#pragma once

#include <string>
#include <vector>

#include "nn/dense.h"
#include "nn/layer.h"

namespace trifold {

struct LabelTowersShape {
  int64_t in = 0;                   // N
  std::vector<std::string> labels;  // names
  std::vector<int64_t> shared;      // widths of the shared layers; may be empty without experts
  std::vector<int64_t> tower;       // widths of a tower's layers; the last is 1
  int experts = 0;                  // E; 0: one shared stack
  double dropout = 0;

  int64_t width() const { return shared.empty() ? in : shared.back(); }  // width of a tower's input
};

// x and dx have the type of the run, the logits and their gradients its accumulate_type.
class LabelTowers final : public Layer {
 public:
  LabelTowers(BlockBuilder& builder, const LabelTowersShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [B, N] -> [B, L]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [B, L] -> [B, N]
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return true; }  // gradients of biases

 private:
  struct Gate {
    std::string name;
    ParamId weight;
    SlotId p, dlogits;
  };

  bool mixes() const { return !gates_.empty(); }
  int64_t side_by_side() const { return shape_.width() * std::max<int64_t>(1, shape_.experts); }
  Tensor spread(Run& run, const Tensor& gates) const;
  Tensor expert_columns(Run& run, DType dtype) const;
  Tensor mixed(Run& run, const Gate& gate, Tensor x, Saved& saved) const;
  void mixed_backward(Run& run, const Gate& gate, const Tensor& dexperts, const Tensor& dmixed,
                      Saved& saved) const;

  LabelTowersShape shape_;
  std::vector<Mlp> stacks_;  // the shared layers, or the experts
  std::vector<Gate> gates_;  // by label; empty without experts
  std::vector<Mlp> towers_;
  SlotId x_, experts_;
  // Columns to copy; members because enqueued operations read them later. One column to and from column i; an expert's
  // columns to and from the columns of all experts, and the sum over the experts.
  std::vector<ColumnCopy> to_column_, from_column_, to_expert_, from_expert_, sum_experts_;
};

}  // namespace trifold
