#include "models/dlrm.h"

#include <memory>
#include <utility>

#include "models/dlrm_shape.h"
#include "models/dlrm_vectors.h"
#include "nn/clicks/label_towers.h"
#include "nn/dense.h"

namespace trifold {

namespace {

// `x` converted to `dtype`, if it has another type.
Tensor converted(Run& run, Arena& arena, Tensor x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor y = arena.take(dtype, x.shape);
  run.ops.convert(run.stream, y, x);
  return y;
}

const DlrmBatch& batch_of(const Run& run) { return static_cast<const DlrmBatch&>(*run.batch->part); }

// The bottom block: dense features -> [B, E], the bottom MLP's vector and, with `wide`, a linear function of the
// features.
class Bottom : public Layer {
 public:
  Bottom(BlockBuilder& builder, const DlrmShape& shape)
      : shape_(shape),
        mlp_(builder, "bottom", mlp_widths(shape.dense, shape.bottom), false, true, shape.dropout, 0,
             first_norm(shape, "bottom")),
        x_(builder.slot()),
        dlinear_(builder.slot()) {
    vector_.width = shape.width;
    linear_from_.from = linear_to_.to = shape.width;
    linear_from_.width = linear_to_.width = shape.logits();
    if (shape.wide)
      linear_ = builder.replicated("wide.weight", {shape.logits(), shape.dense}, {Init::Kind::Zeros}, true);
  }

  Tensor forward(Run& run, Tensor /*x*/, Saved& saved) const override {
    const DlrmBatch& batch = batch_of(run);
    const DType dtype = batch.features.dtype;
    const Tensor x = converted(run, *run.keep, batch.dense, run.dtype);
    const Tensor vector = converted(run, *run.keep, mlp_.forward(run, x, saved), dtype);
    if (!shape_.wide) return vector;
    saved[x_] = x;
    const Tensor linear = run.keep->take(run.dtype, {x.row_count(), shape_.logits()});
    run.ops.gemm(run.stream, linear, x, false, run.weight(linear_), true, 1, 0);
    run.show("wide", "output", linear);
    const Tensor both = run.keep->take(dtype, {x.row_count(), shape_.row()});
    run.ops.copy_columns(run.stream, both, vector, {&vector_, 1});
    run.ops.copy_columns(run.stream, both, converted(run, *run.keep, linear, dtype), {&linear_to_, 1});
    return both;
  }

  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    Tensor dvector = dy;
    if (shape_.wide) {
      const Tensor dlinear = run.flow->take(dy.dtype, {dy.row_count(), shape_.logits()});
      run.ops.copy_columns(run.stream, dlinear, dy, {&linear_from_, 1});
      saved[dlinear_] = converted(run, *run.flow, dlinear, run.dtype);
      dvector = run.flow->take(dy.dtype, {dy.row_count(), shape_.width});
      run.ops.copy_columns(run.stream, dvector, dy, {&vector_, 1});
    }
    return mlp_.backward_input(run, converted(run, *run.flow, dvector, run.dtype), saved);
  }

  void backward_weight(Run& run, Saved& saved) const override {
    mlp_.backward_weight(run, saved);
    if (shape_.wide)
      run.ops.gemm(run.stream, run.grad(linear_), saved[dlinear_], true, saved[x_], false, 1,
                   run.adds_to(linear_) ? 1 : 0);
  }

  bool adds_in_backward_input() const override { return true; }

 private:
  DlrmShape shape_;
  Mlp mlp_;
  ParamId linear_;
  SlotId x_, dlinear_;
  ColumnCopy vector_, linear_from_, linear_to_;
};

// The layers above the interaction, which compute the logits.
std::unique_ptr<Layer> make_head(BlockBuilder& builder, const DlrmShape& shape) {
  if (shape.labels.empty())
    return std::make_unique<Mlp>(builder, "top", mlp_widths(shape.interaction_width(), shape.top), true,
                                 false, shape.dropout, 0, first_norm(shape, "top"));
  return std::make_unique<LabelTowers>(builder, towers_of(shape));
}

// The top block: the vectors' interaction, the layers above it, the terms added to their logits, and the loss. The
// bottom's [B, E], or {} -> [B, L].
class Top : public Layer {
 public:
  Top(BlockBuilder& builder, const DlrmShape& shape)
      : shape_(shape),
        gathered_(builder, shape),
        cross_(builder, "cross", shape.side_by_side(), shape.cross_rank,
               shape.interaction == InteractionKind::Cross ? shape.cross_layers : 0),
        head_(make_head(builder, shape)),
        vectors_(builder.slot()),
        logits_(builder.slot()) {
    vector_.width = shape.width;
    bottom_.width = shape.row();
    for (int64_t l = 0; l < shape.logits(); ++l) {
      weights_.emplace_back().to = (shape.width + l) * shape.logits() + l;
      weights_.back().width = 1;
    }
    if (shape.has_bottom() || shape.interaction != InteractionKind::Dot) return;
    products_ = {0, shape.width, shape.interaction_width(), false, {}};
    products_back_ = {shape.width, 0, shape.interaction_width(), false, {}};
  }

  Tensor forward(Run& run, Tensor x, Saved& saved) const override {
    const DlrmBatch& batch = batch_of(run);
    if (shape_.has_bottom()) run.ops.copy_columns(run.stream, batch.features, x, {&bottom_, 1});
    gathered_.forward(run, batch, saved);
    const Tensor vectors = saved[vectors_] = vectors_of(run, batch.features);
    Tensor y = converted(run, *run.keep, interaction(run, vectors), run.dtype);
    y = head_->forward(run, cross_.forward(run, y, saved), saved);
    saved[logits_] = converted(run, *run.keep, y, batch.features.dtype);
    add_terms(run, saved[logits_], batch.features, vectors);
    if (run.has_backward())
      add_losses(run, saved[logits_]);
    else
      run.ops.copy(run.stream, batch.scores, saved[logits_]);
    return saved[logits_];
  }

  // Writes the gradients of all features to the batch, and returns the gradients of the bottom block's output.
  Tensor backward_input(Run& run, Tensor /*dy*/, Saved& saved) const override {
    const DlrmBatch& batch = batch_of(run);
    const Tensor dlogits = run.flow->take(saved[logits_].dtype, saved[logits_].shape);
    run.ops.click_loss_backward(run.stream, dlogits, saved[logits_], batch.labels, batch.weights,
                                run.loss_factor(), shape_.loss);
    const Tensor& vectors = saved[vectors_];
    const Tensor dvectors =
        shape_.wide ? run.flow->take(vectors.dtype, vectors.shape) : batch.feature_gradients;
    // Before the head's backward_input, which may overwrite dlogits.
    const Tensor dproducts = products_backward(run, dlogits, vectors);
    if (shape_.wide) weights_backward(run, batch.feature_gradients, dlogits);
    const DType head_type = shape_.labels.empty() ? run.dtype : dlogits.dtype;
    const Tensor dx = head_->backward_input(run, converted(run, *run.flow, dlogits, head_type), saved);
    interaction_backward(run, dvectors, cross_.backward_input(run, dx, saved), vectors);
    if (shape_.interaction == InteractionKind::Fm) run.ops.add(run.stream, dvectors, dvectors, dproducts);
    if (shape_.wide) copy_each(run, batch.feature_gradients, dvectors, vector_);
    gathered_.backward_input(run, batch, saved);
    if (!shape_.has_bottom()) return {};
    const Tensor dbottom = run.flow->take(dlogits.dtype, {dlogits.row_count(), shape_.row()});
    run.ops.copy_columns(run.stream, dbottom, batch.feature_gradients, {&bottom_, 1});
    return dbottom;
  }

  void backward_weight(Run& run, Saved& saved) const override {
    head_->backward_weight(run, saved);
    cross_.backward_weight(run, saved);
    gathered_.backward_weight(run, saved);
  }

  bool adds_in_backward_input() const override { return true; }

 private:
  void add_losses(Run& run, const Tensor& logits) const {
    const DlrmBatch& batch = batch_of(run);
    const Tensor losses = run.keep->take(logits.dtype, logits.shape);
    run.ops.click_loss(run.stream, losses, logits, batch.labels, shape_.loss);
    run.show("samples", "losses", losses);
    run.ops.weighted_sum(run.stream, run.loss_sum, losses.flat(), batch.weights);
    if (batch.summed != nullptr) *batch.summed = run.stream.record();
  }

  // ---- Vectors and first-order weights ----

  // Copies columns of each vector of each sample.
  void copy_each(Run& run, const Tensor& y, const Tensor& x, const ColumnCopy& copy) const {
    const int64_t all = x.row_count() * shape_.vectors();
    run.ops.copy_columns(run.stream, y.reshape({all, y.elements() / all}),
                         x.reshape({all, x.elements() / all}), {&copy, 1});
  }

  // The vectors [B, V D] of the features: the features themselves, unless they have first-order weights.
  Tensor vectors_of(Run& run, const Tensor& features) const {
    if (!shape_.wide) return features;
    const Tensor vectors = run.keep->take(features.dtype, {features.row_count(), shape_.side_by_side()});
    copy_each(run, vectors, features, vector_);
    return vectors;
  }

  // ---- Terms of the logit in addition to the MLP's: sums of some columns of a matrix ----

  // [columns, L]: 1 if a column of the features is a weight of the label, else 0.
  Tensor weight_columns(Run& run, DType dtype) const {
    const Tensor columns = run.scratch.take(dtype, {shape_.vectors(), shape_.row() * shape_.logits()});
    const Tensor ones = run.scratch.take(dtype, {shape_.vectors(), 1});
    run.ops.fill(run.stream, columns, 0);
    run.ops.fill(run.stream, ones, 1);
    run.ops.copy_columns(run.stream, columns, ones, weights_);
    return columns.reshape({shape_.vectors() * shape_.row(), shape_.logits()});
  }
  // [columns, L]: 1 if a column of the output of dot_interaction is a product, else 0.
  Tensor product_columns(Run& run, DType dtype) const {
    const Tensor columns = run.scratch.take(dtype, {shape_.width + shape_.pairs(), shape_.logits()});
    const int64_t first = shape_.width * shape_.logits();
    run.ops.fill(run.stream, columns.flat(0, first), 0);
    run.ops.fill(run.stream, columns.flat(first, columns.elements()), 1);
    return columns;
  }

  // logits += x columns, with `columns` as above.
  static void add_columns(Run& run, const Tensor& logits, const Tensor& x, const Tensor& columns) {
    run.ops.gemm(run.stream, logits, x, false, columns, false, 1, 1);
  }
  // dx = dlogits columns^T, the adjoint of add_columns.
  static void spread(Run& run, const Tensor& dx, const Tensor& dlogits, const Tensor& columns) {
    run.ops.gemm(run.stream, dx, dlogits, false, columns, true, 1, 0);
  }

  void add_terms(Run& run, const Tensor& logits, const Tensor& features, const Tensor& vectors) const {
    const Arena::Mark mark = run.scratch.mark();
    if (shape_.wide) add_columns(run, logits, features, weight_columns(run, features.dtype));
    if (shape_.interaction == InteractionKind::Fm) {
      const Tensor products =
          run.scratch.take(vectors.dtype, {vectors.row_count(), shape_.width + shape_.pairs()});
      run.ops.dot_interaction(run.stream, products, vectors, shape_.width, shape_.self);
      add_columns(run, logits, products, product_columns(run, vectors.dtype));
    }
    run.scratch.release(mark);
    if (shape_.wide || shape_.interaction == InteractionKind::Fm) run.show("terms", "output", logits);
  }

  // The gradient of the vectors from the sum of their products; empty unless the interaction is Fm.
  Tensor products_backward(Run& run, const Tensor& dlogits, const Tensor& vectors) const {
    if (shape_.interaction != InteractionKind::Fm) return {};
    const Tensor dvectors = run.flow->take(vectors.dtype, vectors.shape);
    const Arena::Mark mark = run.scratch.mark();
    const Tensor dproducts =
        run.scratch.take(vectors.dtype, {vectors.row_count(), shape_.width + shape_.pairs()});
    spread(run, dproducts, dlogits, product_columns(run, vectors.dtype));
    run.ops.dot_interaction_backward(run.stream, dvectors, dproducts, vectors, shape_.width, shape_.self);
    run.scratch.release(mark);
    return dvectors;
  }

  void weights_backward(Run& run, const Tensor& dfeatures, const Tensor& dlogits) const {
    const Arena::Mark mark = run.scratch.mark();
    spread(run, dfeatures, dlogits, weight_columns(run, dfeatures.dtype));
    run.scratch.release(mark);
  }

  // ---- The top MLP's input ----

  Tensor interaction(Run& run, const Tensor& vectors) const {
    if (shape_.interaction != InteractionKind::Dot) return vectors;
    const auto take = [&](int64_t columns) {
      return run.keep->take(vectors.dtype, {vectors.row_count(), columns});
    };
    const Tensor all = take(products_.from + shape_.interaction_width());
    run.ops.dot_interaction(run.stream, all, vectors, shape_.width, shape_.self);
    if (shape_.has_bottom()) return all;
    const Tensor products = take(shape_.interaction_width());
    run.ops.copy_columns(run.stream, products, all, {&products_, 1});
    return products;
  }

  void interaction_backward(Run& run, const Tensor& dvectors, Tensor dx, const Tensor& vectors) const {
    if (shape_.interaction != InteractionKind::Dot)
      return (dx.dtype == dvectors.dtype ? run.ops.copy : run.ops.convert)(run.stream, dvectors, dx);
    dx = converted(run, *run.flow, dx, dvectors.dtype);
    if (!shape_.has_bottom()) {
      const Tensor padded = run.flow->take(dx.dtype, {dx.row_count(), shape_.width + dx.last_dim()});
      run.ops.fill(run.stream, padded, 0);
      run.ops.copy_columns(run.stream, padded, dx, {&products_back_, 1});
      dx = padded;
    }
    run.ops.dot_interaction_backward(run.stream, dvectors, dx, vectors, shape_.width, shape_.self);
  }

  DlrmShape shape_;
  DlrmVectors gathered_;
  CrossNetwork cross_;  // has no layers for interactions other than Cross
  std::unique_ptr<Layer> head_;
  SlotId vectors_, logits_;
  ColumnCopy vector_;                // a vector out of a row of a table
  std::vector<ColumnCopy> weights_;  // each label's weight, for weight_columns
  ColumnCopy bottom_;                // the first columns of the features
  // Without a bottom MLP: the products out of the output of dot_interaction, which begins with a copy of the first
  // vector, and into its gradient.
  ColumnCopy products_, products_back_;
};

template <class Layers>
void add_block(Model& model, const DlrmShape& shape, const Mesh& mesh, uint64_t seed) {
  BlockBuilder builder(model.params, model.reports, mesh, static_cast<int>(model.blocks.size()), seed);
  Block block;
  block.layer = std::make_unique<Layers>(builder, shape);
  block.slots = builder.slots();
  model.blocks.push_back(std::move(block));
}

}  // namespace

Model make_dlrm(const DlrmShape& shape, const Mesh& mesh, uint64_t seed) {
  check(!shape.has_bottom() || (!shape.bottom.empty() && shape.bottom.back() == shape.width),
        "the last width of the bottom MLP is {}, but embedding vectors have {}",
        shape.bottom.empty() ? 0 : shape.bottom.back(), shape.width);
  check(!shape.top.empty() && shape.top.back() == 1, "the last width of the top MLP must be 1");
  check(shape.labels.size() != 1, "a single label has no name");
  check(shape.labels.empty() || !shape.batch_norm, "batch normalisation is for models of one label");
  check(shape.interaction_width() > 0 && (shape.interaction != InteractionKind::Fm || shape.pairs() > 0),
        "the vectors of {} tables and no dense features have no products", shape.tables);
  Model model;
  if (shape.has_bottom()) add_block<Bottom>(model, shape, mesh, seed);
  add_block<Top>(model, shape, mesh, seed);
  return model;
}

}  // namespace trifold
