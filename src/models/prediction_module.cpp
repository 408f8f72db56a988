#include "models/prediction_module.h"

#include <utility>

#include "config/fields/config.h"
#include "nn/recompute.h"

namespace trifold {

namespace {

static_assert(kMostPredictionModules <= kMostLaterLabels && kMostPredictionModules <= kMostBatchValues);

std::unique_ptr<Layer> layer_of(BlockBuilder& builder, const std::string& name,
                                const PredictionShape& shape) {
  auto layer = std::make_unique<TransformerBlock>(builder, name, shape.layer);
  if (!shape.recompute) return layer;
  return std::make_unique<Recompute>(builder, std::move(layer));
}

}  // namespace

PredictionModule::PredictionModule(BlockBuilder& builder, const std::string& name, int k,
                                   const PredictionShape& shape)
    : name_(name),
      k_(k),
      width_(shape.layer.width),
      region_(builder),
      tensor_part_(builder.mesh().coord(Axis::Tp)),
      row_part_(builder.row_part()),
      multiplier_(shape.embedding_multiplier),
      dropout_(shape.hidden_dropout),
      key_(philox_key(builder.seed(), name + ".embedding.dropout")),
      tokens_(shape.tokens),
      first_id_(builder.params()[shape.tokens].shard.local.offset[0]),
      embedding_norm_(builder, name + ".embedding_norm", width_, shape.norm),
      hidden_norm_(builder, name + ".hidden_norm", width_, shape.norm),
      projection_(builder, name + ".projection", width_, 2 * width_, shape.init, false),
      layer_(layer_of(builder, name, shape)),
      final_norm_(builder, name + ".final_norm", width_, shape.norm),
      loss_(builder, name + ".loss", shape.output, shape.vocab, shape.chunk_rows, {}, shape.logits,
            LaterLoss{k, builder.batch_value(PredictionReports::scale(k)),
                      builder.loss_term(PredictionReports::loss(k))}),
      dtokens_(builder.slot()) {}

Tensor PredictionModule::tokens_of(const Run& run) const {
  const Batch& batch = *run.batch;
  return (k_ == 1 ? batch.labels : batch.later_labels.at(static_cast<size_t>(k_) - 2)).flat();
}

void PredictionModule::move_columns(Run& run, Tensor y, int64_t y_column, Tensor x, int64_t x_column,
                                    int64_t columns, bool all_rows) const {
  const Tensor positions = run.batch->positions.flat();
  run.ops.rotary(run.stream, y, x, all_rows ? positions : region_.own_rows(positions),
                 {{}, 0, 0, columns, x_column, y_column, false});
}

Tensor PredictionModule::embed(Run& run) const {
  const Tensor tokens = tokens_of(run);
  const Region::Sum found = region_.take_sum(run, *run.keep, tokens.elements(), width_);
  run.ops.embedding(run.stream, found.partial, run.weight(tokens_), tokens, first_id_, false);
  region_.add_up(run, found, run.stream);
  const Tensor y = found.result;
  if (multiplier_ != 1) run.ops.scale(run.stream, y, multiplier_);
  if (dropout_ > 0 && run.training) drop_activation(run, y, y, dropout_, key_, row_part_);
  run.scratch.release(found.mark);
  return y;
}

Tensor PredictionModule::forward(Run& outer, Tensor hidden, Saved& saved) const {
  Run run = outer.keeping_in(*outer.keep);
  const Shape both{hidden.row_count(), 2 * width_};
  const Tensor embedded = embed(run);
  // Each tensor rank multiplies its columns of all rows.
  const int64_t columns = region_.alone() ? both[1] : both[1] / run.mesh.size(Axis::Tp);
  const Tensor input = run.keep->take(run.dtype, {region_.rows_inside(both[0]), columns});
  embedding_norm_.take_statistics(run, both[0], saved);
  hidden_norm_.take_statistics(run, both[0], saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor joined = region_.alone() ? input : run.scratch.take(run.dtype, both);
  const Tensor normed = run.scratch.take(run.dtype, hidden.shape);
  embedding_norm_.apply(run, normed, embedded, saved);
  move_columns(run, joined, 0, normed, 0, width_);
  hidden_norm_.apply(run, normed, hidden, saved);
  move_columns(run, joined, width_, normed, 0, width_);
  if (!region_.alone())
    move_columns(run, input, 0, region_.gather_rows(run, joined, run.scratch, run.stream),
                 tensor_part_ * columns, columns, true);
  run.scratch.release(mark);
  const Tensor layer = layer_->forward(run, projection_.forward(run, input, saved), saved);
  const Tensor y = final_norm_.forward(run, layer, saved);
  loss_.forward(run, y, saved);
  return y;
}

Tensor PredictionModule::compute_backward(Run& run, Tensor dy, Saved& saved, bool with_weights) const {
  const auto backward_of = [&](const Layer& layer, Tensor gradient) {
    return with_weights ? layer.backward(run, gradient, saved) : layer.backward_input(run, gradient, saved);
  };
  Tensor dnormed = loss_.backward_input(run, {}, saved);
  if (dy.rank() > 0) {
    const Tensor sum = run.flow->take(run.dtype, dy.shape);
    run.ops.add(run.stream, sum, dnormed, dy);
    dnormed = sum;
  }
  const Tensor dlayer = backward_of(final_norm_, dnormed);
  const Tensor dinput = backward_of(projection_, backward_of(*layer_, dlayer));
  const Tensor dembedded = run.flow->take(run.dtype, dlayer.shape);
  const Tensor dhidden = run.flow->take(run.dtype, dlayer.shape);
  const Arena::Mark mark = run.scratch.mark();
  Tensor djoined = dinput;
  if (!region_.alone()) {
    const Region::Sum sum = region_.take_sum(run, run.scratch, dinput.row_count(), 2 * width_);
    run.ops.fill(run.stream, sum.partial, 0.0);
    move_columns(run, sum.partial, tensor_part_ * dinput.last_dim(), dinput, 0, dinput.last_dim(), true);
    region_.add_up(run, sum, run.stream);
    djoined = sum.result;
  }
  move_columns(run, dembedded, 0, djoined, 0, width_);
  move_columns(run, dhidden, 0, djoined, width_, width_);
  run.scratch.release(mark);
  const Tensor dtokens = backward_of(embedding_norm_, dembedded);
  if (dropout_ > 0 && run.training) drop_activation(run, dtokens, dtokens, dropout_, key_, row_part_);
  if (multiplier_ != 1) run.ops.scale(run.stream, dtokens, multiplier_);
  saved[dtokens_] = dtokens;
  if (with_weights) add_token_gradient(run, saved);
  return backward_of(hidden_norm_, dhidden);
}

// This rank's tokens may occur in any row, so all rows of the gradient are gathered.
void PredictionModule::add_token_gradient(Run& run, Saved& saved) const {
  if (!run.trains(tokens_)) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all = region_.gather_rows(run, saved[dtokens_], run.scratch, run.stream);
  const Tensor tokens = tokens_of(run);
  const Tensor order = run.scratch.take(DType::I32, tokens.shape);
  run.ops.embedding_backward(run.stream, run.grad_from_zero(tokens_), all, tokens, order, first_id_);
  run.scratch.release(mark);
}

void PredictionModule::backward_weight(Run& run, Saved& saved) const {
  final_norm_.backward_weight(run, saved);
  layer_->backward_weight(run, saved);
  projection_.backward_weight(run, saved);
  embedding_norm_.backward_weight(run, saved);
  add_token_gradient(run, saved);
  hidden_norm_.backward_weight(run, saved);
}

}  // namespace trifold
