#include "models/dlrm.h"

namespace trifold {

int64_t DlrmShape::interaction_width() const {
  if (interaction != InteractionKind::Dot) return features();
  const int64_t n = vectors();
  return (has_bottom() ? width : 0) + (self ? n * (n + 1) / 2 : n * (n - 1) / 2);
}

double DlrmShape::train_flops() const {
  double products = 0;  // multiplications of a forward
  const auto add = [&](int64_t in, const std::vector<int64_t>& widths) {
    for (int64_t out : widths) {
      products += static_cast<double>(in) * static_cast<double>(out);
      in = out;
    }
  };
  if (has_bottom()) add(dense, bottom);
  const double input = has_bottom() && !bottom.empty() ? static_cast<double>(dense * bottom[0]) : 0;
  add(interaction_width(), top);
  const auto n = static_cast<double>(vectors());
  if (interaction == InteractionKind::Dot) products += n * n * static_cast<double>(width);
  if (interaction == InteractionKind::Cross)
    products += 2.0 * cross_layers * static_cast<double>(features()) * static_cast<double>(cross_rank);
  return 2 * (3 * products - input);  // nobody asks for the gradient of the dense numbers
}

namespace {

// `x` in another type, where it is of another.
Tensor converted(Run& run, Arena& arena, Tensor x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor y = arena.take(dtype, x.shape);
  run.ops.convert(run.stream, y, x);
  return y;
}

std::vector<int64_t> widths(int64_t in, const std::vector<int64_t>& rest) {
  std::vector<int64_t> all{in};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace

Dlrm::Dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed) : shape_(shape) {
  check(!shape.has_bottom() || (!shape.bottom.empty() && shape.bottom.back() == shape.width),
        "the bottom MLP ends with {} numbers, the embedding vectors have {}",
        shape.bottom.empty() ? 0 : shape.bottom.back(), shape.width);
  check(!shape.top.empty() && shape.top.back() == 1, "the top MLP must end with one number");
  check(shape.interaction_width() > 0, "the vectors of {} tables and no dense features have no products",
        shape.tables);
  BlockBuilder bottom_builder(params_, mesh, kBottom, seed);
  if (shape.has_bottom())
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
  if (shape.has_bottom() || shape.interaction != InteractionKind::Dot) return;
  products_ = {0, shape.width, shape.interaction_width(), false, {}};
  products_back_ = {shape.width, 0, shape.interaction_width(), false, {}};
}

void Dlrm::bottom(Run& run, Tensor features, Tensor dense, Saved& saved) const {
  if (!bottom_) return;
  const Tensor vector = bottom_->forward(run, converted(run, run.keep, dense, run.dtype), saved);
  run.ops.copy_columns(run.stream, features, converted(run, run.keep, vector, features.dtype), {&vector_, 1});
}

Tensor Dlrm::top(Run& run, Tensor features, Saved& saved) const {
  saved[features_] = features;
  Tensor x = features;
  if (shape_.interaction == InteractionKind::Dot) {
    const auto take = [&](int64_t columns) {
      return run.keep.take(features.dtype, {features.row_count(), columns});
    };
    x = take(products_.from + shape_.interaction_width());
    run.ops.dot_interaction(run.stream, x, features, shape_.width, shape_.self);
    if (!bottom_) {
      const Tensor products = take(shape_.interaction_width());
      run.ops.copy_columns(run.stream, products, x, {&products_, 1});
      x = products;
    }
  }
  x = converted(run, run.keep, x, run.dtype);
  if (cross_) x = cross_->forward(run, x, saved);
  return converted(run, run.keep, top_->forward(run, x, saved), features.dtype);
}

Tensor Dlrm::top_backward_input(Run& run, Tensor dlogits, Saved& saved) const {
  Tensor dx = top_->backward_input(run, converted(run, run.flow, dlogits, run.dtype), saved);
  if (cross_) dx = cross_->backward_input(run, dx, saved);
  dx = converted(run, run.flow, dx, dlogits.dtype);
  if (shape_.interaction != InteractionKind::Dot) return dx;
  if (!bottom_) {
    const Tensor padded = run.flow.take(dx.dtype, {dx.row_count(), shape_.width + dx.last_dim()});
    run.ops.fill(run.stream, padded, 0);
    run.ops.copy_columns(run.stream, padded, dx, {&products_back_, 1});
    dx = padded;
  }
  const Tensor dfeatures = run.flow.take(dx.dtype, saved[features_].shape);
  run.ops.dot_interaction_backward(run.stream, dfeatures, dx, saved[features_], shape_.width, shape_.self);
  return dfeatures;
}

void Dlrm::top_backward_weight(Run& run, Saved& saved) const {
  top_->backward_weight(run, saved);
  if (cross_) cross_->backward_weight(run, saved);
}

void Dlrm::bottom_backward(Run& run, Tensor dfeatures, Saved& saved) const {
  if (!bottom_) return;
  const Tensor dvector = run.flow.take(dfeatures.dtype, {dfeatures.row_count(), shape_.width});
  run.ops.copy_columns(run.stream, dvector, dfeatures, {&vector_, 1});
  bottom_->backward(run, converted(run, run.flow, dvector, run.dtype), saved);
}

}  // namespace trifold
