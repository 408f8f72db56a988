#include "models/bert.h"

#include "models/gpt.h"

namespace trifold {

BertEmbedding::BertEmbedding(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab)
    : dropout_(config.hidden_dropout),
      row_part_(builder.row_part()),
      key_(philox_key(builder.seed(), "embedding.dropout")),
      embedding_(builder, "embedding", padded_vocab, added_tables(config, config.num_tokentypes),
                 embedding_width(config), {Init::Kind::Normal, config.init_method_std}),
      norm_(builder, "embedding.norm", embedding_width(config), norm_form(config)) {
  if (embedding_width(config) != config.hidden_size)
    projection_.emplace(builder, "embedding.projection", config.hidden_size, embedding_width(config),
                        Init{Init::Kind::Normal, config.init_method_std});
}

Tensor BertEmbedding::forward(Run& run, Tensor no_input, Saved& saved) const {
  Run keeping_run =
      run.keeping_in(*run.keep);  // backward of the norm reads it, after an outgoing message is released
  const Tensor y = norm_.forward(run, embedding_.forward(keeping_run, no_input, saved), saved);
  if (dropout_ > 0 && run.training) drop_activation(run, y, y, dropout_, key_, row_part_);
  return projection_ ? projection_->forward(run, y, saved) : y;
}

Tensor BertEmbedding::backward_input(Run& run, Tensor dy, Saved& saved) const {
  Tensor dnorm = projection_ ? projection_->backward_input(run, dy, saved) : dy;
  if (dropout_ > 0 && run.training) {
    const Tensor dropped = dnorm;
    dnorm = run.flow->take(run.dtype, dropped.shape);
    drop_activation(run, dnorm, dropped, dropout_, key_, row_part_);
  }
  return embedding_.backward_input(run, norm_.backward_input(run, dnorm, saved), saved);
}

void BertEmbedding::backward_weight(Run& run, Saved& saved) const {
  if (projection_) projection_->backward_weight(run, saved);
  norm_.backward_weight(run, saved);
  embedding_.backward_weight(run, saved);
}

SamplesOfRows samples_of_rows(int64_t seq_length, int64_t begin, int64_t rows) {
  const auto samples_before = [&](int64_t row) { return (row + seq_length - 1) / seq_length; };
  const int64_t first = samples_before(begin);
  return {first, samples_before(begin + rows) - first, first * seq_length - begin};
}

PooledHead::PooledHead(BlockBuilder& builder, int64_t width, Init init, Form form)
    : form_(std::move(form)),
      row_part_(builder.row_part()),
      slices_(builder.sequence_parallel()),
      key_(philox_key(builder.seed(), form_.name + ".dropout")),
      pooler_weight_(builder.replicated("pooler.weight", {width, width}, init, true)),
      pooler_bias_(builder.replicated("pooler.bias", {width}, {Init::Kind::Zeros}, false)),
      weight_(builder.table(builder.replicated(form_.name + ".weight", {form_.classes, width}, init, true))),
      bias_(builder.replicated(form_.name + ".bias", {form_.classes}, {Init::Kind::Zeros}, false)),
      scale_(form_.alone ? std::nullopt : std::optional<BatchValueId>(builder.batch_value(kPairScale))),
      x_(builder.slot()),
      pooled_(builder.slot()),
      dropped_(builder.slot()),
      dlogits_(builder.slot()),
      dz_(builder.slot()) {}

Dropout PooledHead::mask(const Run& run, const SamplesOfRows& samples, int64_t width) const {
  return sample_dropout(run, form_.dropout, key_, samples.first * width, width);
}

namespace {

// y = x W^T + b
void affine(Run& run, Tensor y, Tensor x, ParamId weight, ParamId bias) {
  run.ops.fill_rows(run.stream, y, run.weight(bias));
  run.ops.gemm(run.stream, y, x, false, run.weight(weight), true, 1.0, 1.0);
}

// The first row of sample i among those on this rank.
Tensor first_row(Tensor x, const Run& run, int64_t row, int64_t i) {
  const int64_t at = row + i * run.batch->seq_length();
  return x.rows(at, at + 1);
}

}  // namespace

void PooledHead::forward(Run& run, Tensor x, Saved& saved) const {
  const SamplesOfRows samples = local_samples(run, x.row_count());
  const Shape wide{samples.count, x.last_dim()};
  saved[x_] = run.keep->take(run.dtype, wide);
  saved[pooled_] = run.keep->take(run.dtype, wide);
  saved[dropped_] = drops(run) ? run.keep->take(run.dtype, wide) : saved[pooled_];
  saved[dlogits_] = run.keep->take(run.dtype, {samples.count, form_.classes});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor total = run.scratch.take(DType::F64, {1});
  run.ops.fill(run.stream, total, 0.0);
  if (samples.count > 0) {
    for (int64_t i = 0; i < samples.count; ++i)
      run.ops.copy(run.stream, saved[x_].rows(i, i + 1), first_row(x, run, samples.row, i));
    affine(run, saved[pooled_], saved[x_], pooler_weight_, pooler_bias_);
    run.ops.tanh(run.stream, saved[pooled_], saved[pooled_]);
    run.show("pooler", "output", saved[pooled_]);
    if (drops(run))
      run.ops.dropout(run.stream, saved[dropped_], saved[pooled_], mask(run, samples, x.last_dim()));
    affine(run, saved[dlogits_], saved[dropped_], weight_, bias_);
    run.show(form_.name, "logits", saved[dlogits_]);
    find_losses(run, saved[dlogits_], samples, total);
  }
  if (slices_) reduce_over_axis(run, total, Reduce::Sum);
  if (scale_) run.ops.scale(run.stream, total, run.batch_factor(*scale_));
  run.ops.add(run.stream, run.loss_sum, run.loss_sum, total);
  run.scratch.release(mark);
}

void PooledHead::find_losses(Run& run, Tensor logits, const SamplesOfRows& samples, Tensor total) const {
  const Tensor labels = run.batch->pair_labels.rows(samples.first, samples.first + samples.count);
  const Tensor weights = run.batch->pair_weight.rows(samples.first, samples.first + samples.count);
  const auto row_sums = [&] { return run.scratch.take(accumulate_type(run.dtype), {samples.count}); };
  const Tensor max = row_sums();
  const Tensor sum = row_sums();
  const Tensor target = row_sums();
  const Tensor losses = row_sums();
  run.ops.softmax_stats(run.stream, max, sum, target, logits, labels, 0, form_.classes);
  run.ops.cross_entropy(run.stream, losses, max, sum, target);
  run.show(form_.name, "losses", losses);
  run.ops.weighted_sum(run.stream, total, losses, weights);
  if (run.has_backward())
    run.ops.cross_entropy_backward(run.stream, logits, logits, max, sum, labels, weights,
                                   scale_ ? run.loss_factor(*scale_) : run.loss_factor(), 0, form_.classes);
}

void PooledHead::add_input_gradient(Run& run, Tensor dx, Saved& saved) const {
  const SamplesOfRows samples = local_samples(run, dx.row_count());
  if (samples.count == 0) return;
  saved[dz_] = run.flow->take(run.dtype, saved[x_].shape);
  run.ops.gemm(run.stream, saved[dz_], saved[dlogits_], false, run.weight(weight_), false, 1.0, 0.0);
  if (drops(run)) run.ops.dropout(run.stream, saved[dz_], saved[dz_], mask(run, samples, dx.last_dim()));
  run.ops.tanh_backward(run.stream, saved[dz_], saved[dz_], saved[pooled_]);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor rows = run.scratch.take(run.dtype, saved[x_].shape);
  run.ops.gemm(run.stream, rows, saved[dz_], false, run.weight(pooler_weight_), false, 1.0, 0.0);
  run.show("pooler", "input gradient", rows);
  for (int64_t i = 0; i < samples.count; ++i) {
    const Tensor row = first_row(dx, run, samples.row, i);
    run.ops.add(run.stream, row, row, rows.rows(i, i + 1));
  }
  run.scratch.release(mark);
}

void PooledHead::backward_weight(Run& run, Saved& saved) const {
  if (saved[x_].row_count() == 0 || !run.trains(weight_)) return;
  const auto add = [&](ParamId weight, ParamId bias, const Tensor& dy, const Tensor& x) {
    const bool adds = run.adds_to(weight, bias);
    run.ops.gemm(run.stream, run.grad(weight), dy, true, x, false, 1.0, adds ? 1.0 : 0.0);
    run.ops.column_sum(run.stream, run.grad(bias), dy, adds);
  };
  add(weight_, bias_, saved[dlogits_], saved[dropped_]);
  add(pooler_weight_, pooler_bias_, saved[dz_], saved[x_]);
}

BertHead::BertHead(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab,
                   bool pairs, int64_t chunk_rows)
    : dense_(builder, "head.dense", embedding_width(config), config.hidden_size,
             {Init::Kind::Normal, config.init_method_std},
             !config.disable_bias_linear || config.add_head_bias),
      activation_(builder, "head.activation", head_activation_form(config)),
      norm_(builder, "head.norm", embedding_width(config), norm_form(config)),
      loss_(builder, "head", builder.tied(tokens, "head"), *config.vocab_size, chunk_rows,
            builder.sharded("head.bias", {padded_vocab}, 0, {Init::Kind::Zeros}, false)) {
  if (pairs)
    pair_.emplace(builder, config.hidden_size, Init{Init::Kind::Normal, config.init_method_std},
                  PooledHead::Form{});
}

// The loss no longer needs the norm's result when it returns.
Tensor BertHead::forward(Run& run, Tensor x, Saved& saved) const {
  if (pair_) pair_->forward(run, x, saved);
  const Tensor y = activation_.forward(run, dense_.forward(run, x, saved), saved);
  norm_.take_statistics(run, y.row_count(), saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor normed = run.scratch.take(run.dtype, y.shape);
  norm_.apply(run, normed, y, saved);
  loss_.forward(run, normed, saved);
  run.scratch.release(mark);
  return {};
}

Tensor BertHead::backward_input(Run& run, Tensor no_gradient, Saved& saved) const {
  const Tensor dnormed = loss_.backward_input(run, no_gradient, saved);
  const Tensor dup = activation_.backward_input(run, norm_.backward_input(run, dnormed, saved), saved);
  const Tensor dx = dense_.backward_input(run, dup, saved);
  if (pair_) pair_->add_input_gradient(run, dx, saved);
  return dx;
}

void BertHead::backward_weight(Run& run, Saved& saved) const {
  loss_.backward_weight(run, saved);
  norm_.backward_weight(run, saved);
  dense_.backward_weight(run, saved);
  if (pair_) pair_->backward_weight(run, saved);
}

NormedHead::NormedHead(Norm norm, std::unique_ptr<Layer> head)
    : norm_(std::move(norm)), head_(std::move(head)) {}

Tensor NormedHead::forward(Run& run, Tensor x, Saved& saved) const {
  return head_->forward(run, norm_.forward(run, x, saved), saved);
}

Tensor NormedHead::backward_input(Run& run, Tensor no_gradient, Saved& saved) const {
  return norm_.backward_input(run, head_->backward_input(run, no_gradient, saved), saved);
}

void NormedHead::backward_weight(Run& run, Saved& saved) const {
  head_->backward_weight(run, saved);
  norm_.backward_weight(run, saved);
}

}  // namespace trifold
