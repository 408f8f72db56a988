// Pools a bag of vectors by their attention to a candidate: the history of a user, say, to the item that is shown
// (the local activation unit of the Deep Interest Network: Zhou et al., KDD 2018). B = samples, K = vectors of a bag,
// D = their width; of a sample, c is the candidate and h_k are the vectors of the bag:
//
//   a_k = mlp([c, h_k, c - h_k, c * h_k]);  y = sum over k of a_k h_k
//
// As in the paper the a_k are not normalised. A vector that is zero adds nothing, so bags of fewer than K vectors are
// filled up with zeros: the MLP computes on these too, but neither y nor a gradient of a parameter changes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nn/dense.h"
#include "nn/layer.h"

namespace trifold {

// x, y and their gradients may have another type than the run, in which the MLP computes. Parameters are those of the
// MLP, <name>.<i>.weight and .bias.
class BagAttention final : public Layer {
 public:
  // `widths` of the MLP after its input; the last is 1.
  BagAttention(BlockBuilder& builder, const std::string& name, int64_t width, int64_t vectors,
               std::span<const int64_t> widths);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [B, (1 + K) D] -> [B, D]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [B, D] -> [B, (1 + K) D]
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_backward_input() const override { return true; }  // to those of biases

 private:
  Tensor repeated(Run& run, Arena& arena, const Tensor& x) const;
  void product(Run& run, const Tensor& y, const Tensor& a, const Tensor& b) const;
  void subtract(Run& run, const Tensor& y, const Tensor& x) const;
  void add_up(Run& run, const Tensor& y, const Tensor& x, std::span<const ColumnCopy> where) const;
  Tensor ones(Run& run, DType dtype) const;

  int64_t width_, vectors_;
  Mlp mlp_;
  SlotId candidates_, bag_, factors_;
  // Columns that are copied; operations may read the lists later.
  std::vector<ColumnCopy> repeat_, sum_;        // the candidate to all places, and the sum over the places
  ColumnCopy take_bag_, give_bag_;              // the bag in x
  std::vector<ColumnCopy> parts_, parts_back_;  // of the MLP's input
};

}  // namespace trifold
