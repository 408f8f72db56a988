#include "models/dlrm.h"

namespace trifold {

int64_t DlrmShape::interaction_width() const {
  if (interaction != InteractionKind::Dot) return features();
  const int64_t vectors = tables + 1;
  return width + (self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2);
}

double DlrmShape::train_flops() const {
  double products = 0;  // multiplications of a forward
  const auto add = [&](int64_t in, const std::vector<int64_t>& widths) {
    for (int64_t out : widths) {
      products += static_cast<double>(in) * static_cast<double>(out);
      in = out;
    }
  };
  add(dense, bottom);
  const double input = dense > 0 && !bottom.empty() ? static_cast<double>(dense * bottom[0]) : 0;
  add(interaction_width(), top);
  const auto vectors = static_cast<double>(tables + 1);
  if (interaction == InteractionKind::Dot) products += vectors * vectors * static_cast<double>(width);
  if (interaction == InteractionKind::Cross)
    products += 2.0 * cross_layers * static_cast<double>(features()) * static_cast<double>(cross_rank);
  return 2 * (3 * products - input);  // nobody asks for the gradient of the dense numbers
}

namespace {

std::vector<int64_t> widths(int64_t in, const std::vector<int64_t>& rest) {
  std::vector<int64_t> all{in};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace

Dlrm::Dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed) : shape_(shape) {
  check(!shape.bottom.empty() && shape.bottom.back() == shape.width,
        "the bottom MLP ends with {} numbers, the embedding vectors have {}",
        shape.bottom.empty() ? 0 : shape.bottom.back(), shape.width);
  check(!shape.top.empty() && shape.top.back() == 1, "the top MLP must end with one number");
  BlockBuilder bottom_builder(params_, mesh, kBottom, seed);
  bottom_ = std::make_unique<Mlp>(bottom_builder, "bottom", widths(shape.dense, shape.bottom), false, true);
  // Both blocks' slots are numbered in one list.
  BlockBuilder top_builder(params_, mesh, kTop, seed);
  while (top_builder.slots() < bottom_builder.slots()) top_builder.slot();
  features_ = top_builder.slot();
  if (shape.interaction == InteractionKind::Cross)
    cross_ = std::make_unique<CrossNetwork>(top_builder, "cross", shape.features(), shape.cross_rank,
                                            shape.cross_layers);
  top_ = std::make_unique<Mlp>(top_builder, "top", widths(shape.interaction_width(), shape.top), true, false);
  slots_ = top_builder.slots();
  vector_.width = shape.width;
}

void Dlrm::bottom(Run& run, Tensor features, Tensor dense, Saved& saved) const {
  const Tensor vector = bottom_->forward(run, dense, saved);
  run.ops.copy_columns(run.stream, features, vector, {&vector_, 1});
}

Tensor Dlrm::top(Run& run, Tensor features, Saved& saved) const {
  saved[features_] = features;
  Tensor x = features;
  if (shape_.interaction == InteractionKind::Dot) {
    x = run.keep.take(run.dtype, {features.row_count(), shape_.interaction_width()});
    run.ops.dot_interaction(run.stream, x, features, shape_.width, shape_.self);
  } else if (cross_) {
    x = cross_->forward(run, x, saved);
  }
  return top_->forward(run, x, saved);
}

Tensor Dlrm::top_backward_input(Run& run, Tensor dlogits, Saved& saved) const {
  const Tensor dx = top_->backward_input(run, dlogits, saved);
  if (cross_) return cross_->backward_input(run, dx, saved);
  if (shape_.interaction == InteractionKind::Cat) return dx;
  const Tensor dfeatures = run.flow.take(run.dtype, saved[features_].shape);
  run.ops.dot_interaction_backward(run.stream, dfeatures, dx, saved[features_], shape_.width, shape_.self);
  return dfeatures;
}

void Dlrm::top_backward_weight(Run& run, Saved& saved) const {
  top_->backward_weight(run, saved);
  if (cross_) cross_->backward_weight(run, saved);
}

void Dlrm::bottom_backward(Run& run, Tensor dfeatures, Saved& saved) const {
  const Tensor dvector = run.flow.take(run.dtype, {dfeatures.row_count(), shape_.width});
  run.ops.copy_columns(run.stream, dvector, dfeatures, {&vector_, 1});
  bottom_->backward(run, dvector, saved);
}

}  // namespace trifold
