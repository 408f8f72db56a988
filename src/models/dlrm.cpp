#include "models/dlrm.h"

#include <memory>
#include <utility>

#include "nn/dense.h"

namespace trifold {

int64_t DlrmShape::interaction_width() const {
  if (interaction != InteractionKind::Dot) return features();
  const int64_t n = vectors();
  return (has_bottom() ? width : 0) + (self ? n * (n + 1) / 2 : n * (n - 1) / 2);
}

namespace {

// `x` converted to `dtype`, if it has another type.
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

const DlrmBatch& batch_of(const Run& run) { return static_cast<const DlrmBatch&>(*run.batch->part); }

// The bottom MLP: dense numbers -> [B, D].
class Bottom : public Layer {
 public:
  Bottom(BlockBuilder& builder, const DlrmShape& shape)
      : mlp_(builder, "bottom", widths(shape.dense, shape.bottom), false, true) {}

  Tensor forward(Run& run, Tensor /*x*/, Saved& saved) const override {
    const DlrmBatch& batch = batch_of(run);
    const Tensor vector = mlp_.forward(run, converted(run, run.keep, batch.dense, run.dtype), saved);
    return converted(run, run.keep, vector, batch.features.dtype);
  }
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    return mlp_.backward_input(run, converted(run, run.flow, dy, run.dtype), saved);
  }
  void backward_weight(Run& run, Saved& saved) const override { mlp_.backward_weight(run, saved); }

 private:
  Mlp mlp_;
};

// The vectors' interaction, the top MLP and the loss: the bottom's [B, D], if there is one, -> [B, 1].
class Top : public Layer {
 public:
  Top(BlockBuilder& builder, const DlrmShape& shape)
      : shape_(shape),
        cross_(builder, "cross", shape.features(), shape.cross_rank,
               shape.interaction == InteractionKind::Cross ? shape.cross_layers : 0),
        mlp_(builder, "top", widths(shape.interaction_width(), shape.top), true, false),
        logits_(builder.slot()) {
    vector_.width = shape.width;
    if (shape.has_bottom() || shape.interaction != InteractionKind::Dot) return;
    products_ = {0, shape.width, shape.interaction_width(), false, {}};
    products_back_ = {shape.width, 0, shape.interaction_width(), false, {}};
  }

  Tensor forward(Run& run, Tensor x, Saved& saved) const override {
    const DlrmBatch& batch = batch_of(run);
    if (shape_.has_bottom()) run.ops.copy_columns(run.stream, batch.features, x, {&vector_, 1});
    Tensor y = converted(run, run.keep, interaction(run, batch.features), run.dtype);
    y = mlp_.forward(run, cross_.forward(run, y, saved), saved);
    saved[logits_] = converted(run, run.keep, y, batch.features.dtype);
    if (run.has_backward())
      add_losses(run, saved[logits_]);
    else
      run.ops.copy(run.stream, batch.scores, saved[logits_]);
    return saved[logits_];
  }

  // Leaves the gradients of all features in the batch, and returns those of the bottom's vector.
  Tensor backward_input(Run& run, Tensor /*dy*/, Saved& saved) const override {
    const DlrmBatch& batch = batch_of(run);
    const Tensor dlogits = run.flow.take(saved[logits_].dtype, saved[logits_].shape);
    run.ops.click_loss_backward(run.stream, dlogits, saved[logits_], batch.labels, batch.weights,
                                run.loss_factor(), shape_.loss);
    Tensor dx = mlp_.backward_input(run, converted(run, run.flow, dlogits, run.dtype), saved);
    interaction_backward(run, cross_.backward_input(run, dx, saved), batch);
    if (!shape_.has_bottom()) return {};
    const Tensor dvector = run.flow.take(dlogits.dtype, {dlogits.row_count(), shape_.width});
    run.ops.copy_columns(run.stream, dvector, batch.feature_gradients, {&vector_, 1});
    return dvector;
  }

  void backward_weight(Run& run, Saved& saved) const override {
    mlp_.backward_weight(run, saved);
    cross_.backward_weight(run, saved);
  }

 private:
  void add_losses(Run& run, const Tensor& logits) const {
    const DlrmBatch& batch = batch_of(run);
    const Tensor losses = run.keep.take(logits.dtype, logits.shape);
    run.ops.click_loss(run.stream, losses, logits, batch.labels, shape_.loss);
    run.show("samples", "losses", losses);
    run.ops.weighted_sum(run.stream, run.loss_sum, losses.flat(), batch.weights);
    if (batch.summed != nullptr) *batch.summed = run.stream.record();
  }

  Tensor interaction(Run& run, const Tensor& features) const {
    if (shape_.interaction != InteractionKind::Dot) return features;
    const auto take = [&](int64_t columns) {
      return run.keep.take(features.dtype, {features.row_count(), columns});
    };
    const Tensor all = take(products_.from + shape_.interaction_width());
    run.ops.dot_interaction(run.stream, all, features, shape_.width, shape_.self);
    if (shape_.has_bottom()) return all;
    const Tensor products = take(shape_.interaction_width());
    run.ops.copy_columns(run.stream, products, all, {&products_, 1});
    return products;
  }

  void interaction_backward(Run& run, Tensor dx, const DlrmBatch& batch) const {
    const Tensor& gradients = batch.feature_gradients;
    if (shape_.interaction != InteractionKind::Dot)
      return (dx.dtype == gradients.dtype ? run.ops.copy : run.ops.convert)(run.stream, gradients, dx);
    dx = converted(run, run.flow, dx, gradients.dtype);
    if (!shape_.has_bottom()) {
      const Tensor padded = run.flow.take(dx.dtype, {dx.row_count(), shape_.width + dx.last_dim()});
      run.ops.fill(run.stream, padded, 0);
      run.ops.copy_columns(run.stream, padded, dx, {&products_back_, 1});
      dx = padded;
    }
    run.ops.dot_interaction_backward(run.stream, gradients, dx, batch.features, shape_.width, shape_.self);
  }

  DlrmShape shape_;
  CrossNetwork cross_;  // without layers for other interactions
  Mlp mlp_;
  SlotId logits_;
  ColumnCopy vector_;  // of the bottom MLP: the first columns of the features
  // Without a bottom MLP: the products alone, and back. The operation puts them after a copy of the first vector.
  ColumnCopy products_, products_back_;
};

// Multiplications of a chain of products for one sample.
double products_of(const std::vector<int64_t>& widths) {
  double products = 0;
  for (size_t i = 1; i < widths.size(); ++i)
    products += static_cast<double>(widths[i - 1]) * static_cast<double>(widths[i]);
  return products;
}

// The gradient of the dense numbers is not needed.
BlockFlops bottom_flops(const DlrmShape& shape) {
  const double products = products_of(widths(shape.dense, shape.bottom));
  return {2 * products, 2 * (products - static_cast<double>(shape.dense * shape.bottom[0])), 2 * products};
}

// Both operands of a dot interaction have gradients, and a cross network has weights.
BlockFlops top_flops(const DlrmShape& shape) {
  const double mlp = products_of(widths(shape.interaction_width(), shape.top));
  const auto vectors = static_cast<double>(shape.vectors());
  if (shape.interaction == InteractionKind::Dot) {
    const double pairs = vectors * vectors * static_cast<double>(shape.width);
    return {2 * (mlp + pairs), 2 * (mlp + 2 * pairs), 2 * mlp};
  }
  const double cross = shape.interaction == InteractionKind::Cat
                           ? 0
                           : 2.0 * shape.cross_layers * static_cast<double>(shape.features()) *
                                 static_cast<double>(shape.cross_rank);
  return {2 * (mlp + cross), 2 * (mlp + cross), 2 * (mlp + cross)};
}

template <class Layers>
void add_block(Model& model, const DlrmShape& shape, const Mesh& mesh, uint64_t seed,
               const BlockFlops& flops) {
  BlockBuilder builder(model.params, mesh, static_cast<int>(model.blocks.size()), seed);
  Block block;
  block.layer = std::make_unique<Layers>(builder, shape);
  block.slots = builder.slots();
  block.flops = block.cost = flops.forward;
  block.parts = flops;
  model.blocks.push_back(std::move(block));
}

}  // namespace

Model make_dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed) {
  check(!shape.has_bottom() || (!shape.bottom.empty() && shape.bottom.back() == shape.width),
        "the bottom MLP ends with {} numbers, the embedding vectors have {}",
        shape.bottom.empty() ? 0 : shape.bottom.back(), shape.width);
  check(!shape.top.empty() && shape.top.back() == 1, "the top MLP must end with one number");
  check(shape.interaction_width() > 0, "the vectors of {} tables and no dense features have no products",
        shape.tables);
  Model model;
  if (shape.has_bottom()) add_block<Bottom>(model, shape, mesh, seed, bottom_flops(shape));
  add_block<Top>(model, shape, mesh, seed, top_flops(shape));
  return model;
}

double train_flops(const Model& dlrm) {
  double flops = 0;
  for (const Block& block : dlrm.blocks)
    flops += block.parts.forward + block.parts.input + block.parts.weight;
  return flops;
}

}  // namespace trifold
