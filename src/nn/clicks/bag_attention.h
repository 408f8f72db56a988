// BagAttention: pools a bag of vectors by their attention to a candidate, such as a user's history to the item shown
// (the local activation unit of the Deep Interest Network: Zhou et al., KDD 2018). B = samples, K = vectors of a bag, D
// = width of a vector; for each sample with candidate c and vectors h_k:
//
//   a_k = mlp([c, h_k, c - h_k, c * h_k]);  y = sum over k of a_k h_k
//
// As in the paper the a_k are not normalised. Zero vectors add nothing, so bags of fewer than K vectors are padded with
// zeros: the MLP computes on these too, but they change neither y nor the gradients of parameters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nn/dense.h"
#include "nn/layer.h"

namespace trifold {

// x = [c, h_1, ..., h_K], y and their gradients may have another type than the run; the MLP computes in the run's type.
// Its parameters are <name>.<i>.weight and <name>.<i>.bias.
class BagAttention final : public Layer {
 public:
  // `widths`: the output widths of the MLP's layers; the last is 1.
  BagAttention(BlockBuilder& builder, const std::string& name, int64_t width, int64_t vectors,
               std::span<const int64_t> widths);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [B, (1 + K) D] -> [B, D]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [B, D] -> [B, (1 + K) D]
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return true; }  // gradients of biases

 private:
  Tensor repeated(Run& run, Arena& arena, const Tensor& x) const;
  void product(Run& run, const Tensor& y, const Tensor& a, const Tensor& b) const;
  void subtract(Run& run, const Tensor& y, const Tensor& x) const;
  void add_up(Run& run, const Tensor& y, const Tensor& x, std::span<const ColumnCopy> where) const;
  Tensor ones(Run& run, DType dtype) const;

  int64_t width_, vectors_;
  Mlp mlp_;
  SlotId candidates_, bag_, factors_;
  // Columns to copy. They are members because enqueued operations read them later.
  std::vector<ColumnCopy> repeat_, sum_;  // one vector to K, and the sum of K vectors
  ColumnCopy take_bag_, give_bag_;        // h_1, ..., h_K out of x, and into dx
  std::vector<ColumnCopy> parts_,
      parts_back_;  // the four parts into the MLP's input, and out of its gradient
};

}  // namespace trifold
