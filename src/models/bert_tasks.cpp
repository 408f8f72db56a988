#include "models/bert_tasks.h"

#include "nn/context/context_rows.h"

namespace trifold {

namespace {

Init init_of(const ModelConfig& config) { return {Init::Kind::Normal, config.init_method_std}; }

bool is_first_of_context(const Run& run) { return run.mesh.coord(Axis::Cp) == 0; }

// weight_sum += the samples' weights, once for all context ranks
void count_samples(Run& run) {
  if (!is_first_of_context(run)) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor& weights = run.batch->pair_weight;
  const Tensor ones = run.scratch.take(accumulate_type(run.dtype), weights.shape);
  run.ops.fill(run.stream, ones, 1.0);
  run.ops.weighted_sum(run.stream, run.weight_sum, ones, weights);
  run.scratch.release(mark);
}

}  // namespace

ClassHead::ClassHead(BlockBuilder& builder, const ModelConfig& config)
    : head_(builder, config.hidden_size, init_of(config),
            {std::string(kClassLogits.layer), static_cast<int64_t>(config.class_names.size()),
             config.hidden_dropout, true}),
      x_(builder.slot()) {}

Tensor ClassHead::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  head_.forward(run, x, saved);
  count_samples(run);
  return {};
}

Tensor ClassHead::backward_input(Run& run, Tensor, Saved& saved) const {
  const Tensor dx = run.flow->take(run.dtype, saved[x_].shape);
  run.ops.fill(run.stream, dx, 0.0);
  head_.add_input_gradient(run, dx, saved);
  return dx;
}

void ClassHead::backward_weight(Run& run, Saved& saved) const { head_.backward_weight(run, saved); }

SpanHead::SpanHead(BlockBuilder& builder, const ModelConfig& config)
    : region_(builder),
      weight_(
          builder.table(builder.replicated("answer.weight", {2, config.hidden_size}, init_of(config), true))),
      x_(builder.slot()),
      dlogits_{builder.slot(), builder.slot()} {}

Tensor SpanHead::forward(Run& run, Tensor x, Saved& saved) const {
  const Batch& batch = *run.batch;
  const Tensor labels[] = {batch.answer_begin, batch.answer_end};
  const ShownResult shown[] = {kAnswerBegin, kAnswerEnd};
  saved[x_] = x;
  for (const SlotId slot : dlogits_) saved[slot] = run.keep->take(run.dtype, {x.row_count(), 1});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor total = run.scratch.take(DType::F64, {1});
  run.ops.fill(run.stream, total, 0.0);
  for (int end = 0; end < 2; ++end) {
    const Tensor rank_logits = saved[dlogits_[end]];
    run.ops.gemm(run.stream, rank_logits, x, false, run.weight(weight_).rows(end, end + 1), true, 1.0, 0.0);
    const Tensor local = region_.gather_rows(run, rank_logits, run.scratch, run.stream);
    const Tensor all = of_all_positions(run, local);
    const Tensor logits = all.reshape({batch.samples(), all.elements() / batch.samples()});
    run.show(shown[end].layer, shown[end].what, logits);
    find_losses(run, logits, labels[end], total);
    const Tensor gradient = of_positions_here(run, all);
    const Tensor rank_gradient = region_.slices() ? region_.own_rows(gradient) : gradient;
    if (rank_gradient.data != rank_logits.data) run.ops.copy(run.stream, rank_logits, rank_gradient);
  }
  run.ops.scale(run.stream, total, 0.5);
  if (is_first_of_context(run)) run.ops.add(run.stream, run.loss_sum, run.loss_sum, total);
  run.scratch.release(mark);
  count_samples(run);
  return {};
}

Tensor SpanHead::of_all_positions(Run& run, Tensor local) const {
  if (run.mesh.size(Axis::Cp) == 1) return local;
  const Tensor by_rank = run.scratch.take(local.dtype, {rows_of_all(run), 1});
  run.mesh.comm({Axis::Cp}).all_gather(by_rank, local, run.stream);
  const Tensor all = run.scratch.take(local.dtype, by_rank.shape);
  to_order(run, all, by_rank);
  return all;
}

Tensor SpanHead::of_positions_here(Run& run, Tensor all) const {
  const int parts = run.mesh.size(Axis::Cp);
  if (parts == 1) return all;
  const Tensor by_rank = run.scratch.take(all.dtype, all.shape);
  to_ranks(run, by_rank, all);
  const int64_t rows = all.row_count() / parts;
  const int64_t begin = run.mesh.coord(Axis::Cp) * rows;
  return by_rank.rows(begin, begin + rows);
}

void SpanHead::find_losses(Run& run, Tensor logits, Tensor labels, Tensor total) const {
  const Arena::Mark mark = run.scratch.mark();
  const int64_t positions = logits.last_dim();
  const auto row_sums = [&] { return run.scratch.take(accumulate_type(run.dtype), labels.shape); };
  const Tensor max = row_sums();
  const Tensor sum = row_sums();
  const Tensor target = row_sums();
  const Tensor losses = row_sums();
  run.ops.softmax_stats(run.stream, max, sum, target, logits, labels, 0, positions);
  run.ops.cross_entropy(run.stream, losses, max, sum, target);
  run.show(kAnswerBegin.layer, "losses", losses);
  run.ops.weighted_sum(run.stream, total, losses, run.batch->pair_weight);
  if (run.has_backward())
    run.ops.cross_entropy_backward(run.stream, logits, logits, max, sum, labels, run.batch->pair_weight,
                                   run.loss_factor(0.5), 0, positions);
  run.scratch.release(mark);
}

Tensor SpanHead::backward_input(Run& run, Tensor, Saved& saved) const {
  const Tensor dx = run.flow->take(run.dtype, saved[x_].shape);
  for (int end = 0; end < 2; ++end)
    run.ops.gemm(run.stream, dx, saved[dlogits_[end]], false, run.weight(weight_).rows(end, end + 1), false,
                 1.0, end == 0 ? 0.0 : 1.0);
  run.show(kAnswerBegin.layer, "input gradient", dx);
  return dx;
}

void SpanHead::backward_weight(Run& run, Saved& saved) const {
  const double beta = run.adds_to(weight_) ? 1 : 0;
  for (int end = 0; end < 2; ++end)
    run.ops.gemm(run.stream, run.grad(weight_).rows(end, end + 1), saved[dlogits_[end]], true, saved[x_],
                 false, 1.0, beta);
}

}  // namespace trifold
