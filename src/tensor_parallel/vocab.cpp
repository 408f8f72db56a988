#include "tensor_parallel/vocab.h"

#include "tensor_parallel/column_product.h"

namespace trifold {

VocabEmbedding::VocabEmbedding(BlockBuilder& builder, const std::string& name, int64_t padded_vocab,
                               int64_t positions, int64_t width, Init init)
    : region_(builder),
      width_(width),
      tokens_(builder.sharded(name + ".tokens.weight", {padded_vocab, width}, 0, init, true)),
      positions_(builder.replicated(name + ".positions.weight", {positions, width}, init, true)),
      dy_(builder.slot()) {
  first_id_ = builder.params()[tokens_].shard.local.offset[0];
}

Tensor VocabEmbedding::forward(Run& run, Tensor, Saved&) const {
  const Tensor tokens = run.batch->tokens.flat();
  const Region::Sum y = region_.take_sum(run, run.keep, tokens.elements(), width_);
  run.ops.embedding(run.stream, y.partial, run.weight(tokens_), tokens, first_id_, false);
  region_.add_up(run, y, run.stream);
  run.scratch.release(y.mark);
  run.ops.embedding(run.stream, y.result, run.weight(positions_), positions(run), 0, true);
  return y.result;
}

Tensor VocabEmbedding::positions(const Run& run) const {
  return region_.own_rows(run.batch->positions.flat());
}

Tensor VocabEmbedding::backward_input(Run&, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  return {};
}

// A rank's tokens may stand in any row, so it needs all rows of dy for them.
void VocabEmbedding::backward_weight(Run& run, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_dy = region_.gather_rows(run, saved[dy_], run.scratch, run.stream);
  run.ops.embedding_backward(run.stream, run.grad(tokens_), all_dy, run.batch->tokens.flat(), first_id_);
  run.ops.embedding_backward(run.stream, run.grad(positions_), saved[dy_], positions(run), 0);
  run.scratch.release(mark);
}

VocabCrossEntropy::VocabCrossEntropy(BlockBuilder& builder, ParamId weight, int64_t vocab)
    : region_(builder),
      vocab_(vocab),
      first_id_(builder.params()[weight].shard.local.offset[0]),
      weight_(weight),
      x_(builder.slot()),
      logits_(builder.slot()),
      max_(builder.slot()),
      sum_(builder.slot()) {}

Tensor VocabCrossEntropy::logits(Run& run, Tensor x) const {
  check(!region_.slices(),
        "logits of chosen rows need whole activations: sample without sequence parallelism");
  const Tensor w = run.weight(weight_);
  const Tensor y = run.keep.take(run.dtype, {x.row_count(), w.row_count()});
  run.ops.gemm(run.stream, y, x, false, w, true, 1.0, 0.0);
  return y;
}

Tensor VocabCrossEntropy::forward(Run& run, Tensor x, Saved& saved) const {
  const int64_t rows = region_.rows_inside(x.row_count());
  const Tensor w = run.weight(weight_);
  saved[x_] = x;
  saved[logits_] = run.keep.take(run.dtype, {rows, w.row_count()});
  saved[max_] = run.keep.take(run.dtype, {rows});
  saved[sum_] = run.keep.take(run.dtype, {rows});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  run.ops.gemm(run.stream, saved[logits_], all_x, false, w, true, 1.0, 0.0);
  add_loss(run, saved);
  run.scratch.release(mark);
  return {};
}

// Every rank of the axis sees a part of each row. The row's true maximum is the largest of the parts' maxima;
// each part's sum of exponentials is rescaled to it and the sums are added; the label's logit is zero on all
// ranks but its own.
void VocabCrossEntropy::add_loss(Run& run, Saved& saved) const {
  const Shape rows = saved[max_].shape;
  const Tensor target = run.scratch.take(run.dtype, rows);
  run.ops.softmax_stats(run.stream, saved[max_], saved[sum_], target, saved[logits_],
                        run.batch->labels.flat(), first_id_, vocab_);
  if (!region_.alone()) {
    const Tensor local_max = run.scratch.take(run.dtype, rows);
    run.ops.copy(run.stream, local_max, saved[max_]);
    reduce_over_axis(run, saved[max_], Reduce::Max);
    run.ops.softmax_rescale(run.stream, saved[sum_], local_max, saved[max_]);
    reduce_over_axis(run, saved[sum_], Reduce::Sum);
    reduce_over_axis(run, target, Reduce::Sum);
  }
  const Tensor loss = run.scratch.take(run.dtype, rows);
  const Tensor weight = run.batch->loss_weight.flat();
  run.ops.cross_entropy(run.stream, loss, saved[max_], saved[sum_], target);
  run.ops.weighted_sum(run.stream, run.loss_sum, loss, weight);
  run.ops.fill(run.stream, loss, 1.0);
  run.ops.weighted_sum(run.stream, run.weight_sum, loss, weight);
}

// The logits become their own gradient: they are the largest tensor of the step.
void VocabCrossEntropy::to_gradient(Run& run, Saved& saved) const {
  run.ops.cross_entropy_backward(run.stream, saved[logits_], saved[logits_], saved[max_], saved[sum_],
                                 run.batch->labels.flat(), run.batch->loss_weight.flat(), run.loss_scale,
                                 first_id_, vocab_);
}

Tensor VocabCrossEntropy::backward_input(Run& run, Tensor, Saved& saved) const {
  to_gradient(run, saved);
  return input_gradient(region_, run, saved[logits_], run.weight(weight_));
}

void VocabCrossEntropy::backward_weight(Run& run, Saved& saved) const {
  weight_gradient(region_, run, run.grad(weight_), saved[logits_], saved[x_]);
}

Tensor VocabCrossEntropy::backward(Run& run, Tensor, Saved& saved) const {
  to_gradient(run, saved);
  return both_gradients(region_, run, run.grad(weight_), saved[logits_], run.weight(weight_), saved[x_]);
}

}  // namespace trifold
