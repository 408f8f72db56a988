#include "tensor_parallel/vocab.h"

namespace trifold {

namespace {

Tensor as_vector(Tensor t) { return t.reshape({t.elements()}); }

}  // namespace

VocabEmbedding::VocabEmbedding(BlockBuilder& builder, const std::string& name, int64_t padded_vocab,
                               int64_t positions, int64_t width, Init init)
    : width_(width),
      tokens_(builder.sharded(name + ".tokens.weight", {padded_vocab, width}, 0, init, true)),
      positions_(builder.replicated(name + ".positions.weight", {positions, width}, init, true)),
      dy_(builder.slot()) {
  first_id_ = builder.params()[tokens_].shard.local.offset[0];
}

Tensor VocabEmbedding::forward(Run& run, Tensor, Saved&) const {
  const Tensor tokens = as_vector(run.batch->tokens);
  const Tensor y = run.keep.take(run.dtype, {tokens.elements(), width_});
  run.ops.embedding(run.stream, y, run.weight(tokens_), tokens, first_id_, false);
  if (run.mesh.size(Axis::Tp) > 1) run.mesh.comm({Axis::Tp}).all_reduce(y, Reduce::Sum, run.stream);
  run.ops.embedding(run.stream, y, run.weight(positions_), as_vector(run.batch->positions), 0, true);
  return y;
}

Tensor VocabEmbedding::backward_input(Run&, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  return {};
}

void VocabEmbedding::backward_weight(Run& run, Saved& saved) const {
  run.ops.embedding_backward(run.stream, run.grad(tokens_), saved[dy_], as_vector(run.batch->tokens),
                             first_id_);
  run.ops.embedding_backward(run.stream, run.grad(positions_), saved[dy_], as_vector(run.batch->positions),
                             0);
}

VocabCrossEntropy::VocabCrossEntropy(BlockBuilder& builder, ParamId tied_tokens, int64_t vocab)
    : vocab_(vocab),
      first_id_(builder.params()[tied_tokens].shard.local.offset[0]),
      weight_(builder.tied(tied_tokens, "head")),
      x_(builder.slot()),
      logits_(builder.slot()),
      max_(builder.slot()),
      sum_(builder.slot()) {}

Tensor VocabCrossEntropy::logits(Run& run, Tensor x) const {
  const Tensor w = run.weight(weight_);
  const Tensor y = run.keep.take(run.dtype, {x.row_count(), w.row_count()});
  run.ops.gemm(run.stream, y, x, false, w, true, 1.0, 0.0);
  return y;
}

// Every rank of the axis sees a part of each row. The row's true maximum is the largest of the parts' maxima;
// each part's sum of exponentials is rescaled to it and the sums are added; the label's logit is zero on all
// ranks but its own.
Tensor VocabCrossEntropy::forward(Run& run, Tensor x, Saved& saved) const {
  const int64_t rows = x.row_count();
  saved[x_] = x;
  saved[logits_] = logits(run, x);
  saved[max_] = run.keep.take(run.dtype, {rows});
  saved[sum_] = run.keep.take(run.dtype, {rows});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor target = run.scratch.take(run.dtype, {rows});
  run.ops.softmax_stats(run.stream, saved[max_], saved[sum_], target, saved[logits_],
                        as_vector(run.batch->labels), first_id_, vocab_);
  if (run.mesh.size(Axis::Tp) > 1) {
    Communicator& axis = run.mesh.comm({Axis::Tp});
    const Tensor local_max = run.scratch.take(run.dtype, {rows});
    run.ops.copy(run.stream, local_max, saved[max_]);
    axis.all_reduce(saved[max_], Reduce::Max, run.stream);
    run.ops.softmax_rescale(run.stream, saved[sum_], local_max, saved[max_]);
    axis.all_reduce(saved[sum_], Reduce::Sum, run.stream);
    axis.all_reduce(target, Reduce::Sum, run.stream);
  }
  const Tensor loss = run.scratch.take(run.dtype, {rows});
  const Tensor weight = as_vector(run.batch->loss_weight);
  run.ops.cross_entropy(run.stream, loss, saved[max_], saved[sum_], target);
  run.ops.weighted_sum(run.stream, run.loss_sum, loss, weight);
  run.ops.fill(run.stream, loss, 1.0);
  run.ops.weighted_sum(run.stream, run.weight_sum, loss, weight);
  run.scratch.release(mark);
  return {};
}

Tensor VocabCrossEntropy::backward_input(Run& run, Tensor, Saved& saved) const {
  const Tensor logits = saved[logits_];  // becomes its own gradient: it is the largest tensor of the step
  run.ops.cross_entropy_backward(run.stream, logits, logits, saved[max_], saved[sum_],
                                 as_vector(run.batch->labels), as_vector(run.batch->loss_weight),
                                 run.loss_scale, first_id_, vocab_);
  const Tensor dx = run.flow.take(run.dtype, saved[x_].shape);
  run.ops.gemm(run.stream, dx, logits, false, run.weight(weight_), false, 1.0, 0.0);
  if (run.mesh.size(Axis::Tp) > 1) run.mesh.comm({Axis::Tp}).all_reduce(dx, Reduce::Sum, run.stream);
  return dx;
}

void VocabCrossEntropy::backward_weight(Run& run, Saved& saved) const {
  run.ops.gemm(run.stream, run.grad(weight_), saved[logits_], true, saved[x_], false, 1.0, 1.0);
}

}  // namespace trifold
