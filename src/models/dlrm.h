// DLRM (Naumov et al., arXiv 1906.00091): a bottom MLP makes a vector of the dense numbers, an embedding bag
// one of each table's ids; their interaction and a top MLP make the logit of a click. Data parallel all of it
// but the tables, which are elsewhere (room embedding): the model here takes the bags' vectors as given.
//
// B = samples of this rank, F = tables, D = width of the vectors. `features` [B, (F + 1) D] holds for each
// sample the bottom MLP's vector and then the tables' in their order. Without dense numbers there is no
// bottom MLP: features are [B, F D], and the tables' vectors meet each other alone.
//
// The parts are called apart so that what travels between ranks can hide behind them:
//
//   forward   bottom                               while the bags' vectors arrive
//             top
//   backward  top_backward_input                   gives the gradient of the features
//             top_backward_weight, bottom_backward while the bags' gradients travel
//
// Features, logits and their gradients are in f32 or f64. With Run::dtype bf16 the MLPs and the cross network
// compute in that, from what was rounded once; products of pairs stay in the type of the features.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/recommend_choices.h"
#include "nn/dense.h"

namespace trifold {

struct DlrmShape {
  int64_t dense = 13;
  int64_t tables = 0;
  int64_t width = 0;            // D
  std::vector<int64_t> bottom;  // widths after the input; the last is D
  std::vector<int64_t> top;     // widths after the interaction; the last is 1
  InteractionKind interaction = InteractionKind::Dot;
  bool self = false;     // Dot: products of vectors with themselves too
  int cross_layers = 3;  // Cross
  int64_t cross_rank = 512;

  bool has_bottom() const { return dense > 0; }
  int64_t vectors() const { return tables + (has_bottom() ? 1 : 0); }
  int64_t features() const { return vectors() * width; }
  int64_t interaction_width() const;
  // Multiplications and additions of matrix products for one sample, forward and backward.
  double train_flops() const;
};

class Dlrm {
 public:
  static constexpr int kBottom = 0;  // blocks: of parameters, and of reductions
  static constexpr int kTop = 1;
  // Those that there are.
  static std::vector<int> blocks(const DlrmShape& shape) {
    return shape.has_bottom() ? std::vector<int>{kBottom, kTop} : std::vector<int>{kTop};
  }

  // Failure where widths do not fit, or there are too few vectors for products. `mesh` must
  // outlive the model.
  Dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed);
  Dlrm(const Dlrm&) = delete;
  Dlrm& operator=(const Dlrm&) = delete;

  const DlrmShape& shape() const { return shape_; }
  const ParamList& params() const { return params_; }
  int slots() const { return slots_; }

  // Writes the vector of `dense` [B, dense] into the first D columns of `features`; nothing without a bottom.
  void bottom(Run& run, Tensor features, Tensor dense, Saved& saved) const;
  // Logits [B, 1].
  Tensor top(Run& run, Tensor features, Saved& saved) const;
  // Gradient of the features [B, (F + 1) D] from that of the logits, which is overwritten.
  Tensor top_backward_input(Run& run, Tensor dlogits, Saved& saved) const;
  void top_backward_weight(Run& run, Saved& saved) const;
  void bottom_backward(Run& run, Tensor dfeatures, Saved& saved) const;

 private:
  DlrmShape shape_;
  ParamList params_;
  int slots_ = 0;
  std::unique_ptr<Mlp> bottom_, top_;  // bottom_ is null without dense numbers
  std::unique_ptr<CrossNetwork> cross_;
  SlotId features_;
  ColumnCopy vector_;  // of the bottom MLP: the first columns of the features
  // Without it: the products alone, and back. The operation puts them behind a copy of the first vector.
  ColumnCopy products_, products_back_;
};

}  // namespace trifold
