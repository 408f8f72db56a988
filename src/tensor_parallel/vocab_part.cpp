#include "tensor_parallel/vocab_part.h"

#include <algorithm>

#include "tensor_parallel/vocab.h"

namespace trifold {

VocabPart::VocabPart(BlockBuilder& builder, std::string name, ParamId weight, int64_t vocab, PartIndex part,
                     LogitForm form, std::unique_ptr<SampleLoss> samples)
    : name_(std::move(name)),
      region_(builder),
      part_(part),
      vocab_(vocab),
      first_id_(builder.params()[weight].shard.local.offset[0]),
      weight_(weight),
      form_(form),
      samples_(std::move(samples)),
      x_(builder.slot()),
      logits_(builder.slot()),
      statistics_(builder.slot()) {}

namespace {

int64_t rows_of(const Run& run) { return run.batch->tokens.elements(); }

}  // namespace

WithStatistics VocabPart::take(Run& run, Arena& arena, Tensor like) const {
  const int64_t count = kRowStatistics * rows_of(run);
  const Shape shape = shape_with_statistics(like.row_count(), like.last_dim(), run.dtype, count);
  return {arena.take(run.dtype, shape), like.row_count(), count};
}

WithStatistics VocabPart::with_statistics(Run& run, Tensor all) const {
  return {all, region_.rows_outside(rows_of(run)), kRowStatistics * rows_of(run)};
}

// x stays in the previous block's memory or in the message received, both of which outlive the backward. Another rank
// gets a copy.
Tensor VocabPart::forward(Run& run, Tensor x, Saved& saved) const {
  const WithStatistics in = with_statistics(run, x);
  const int64_t rows = rows_of(run);
  const VocabStatistics all = VocabStatistics::in(in.statistics, rows);
  Tensor logits;
  if (run.has_backward()) {
    saved[x_] = in.activation;
    saved[statistics_] = in.statistics;
    logits = saved[logits_] = run.keep->take(run.dtype, {rows, run.weight(weight_).row_count()});
  }
  const WithStatistics out =
      run.outgoing != nullptr && !part_.last() ? take(run, *run.outgoing, in.activation) : in;
  const Arena::Mark mark = run.scratch.mark();
  find_logits(run, region_.gather_rows(run, in.activation, run.scratch, run.stream), all, logits);
  if (part_.last()) add_losses(run, all);
  run.scratch.release(mark);
  if (part_.last()) return {};
  if (out.all.data != in.all.data) run.ops.copy(run.stream, out.all, in.all);
  return out.all;
}

// Computes the logits in chunks of rows; in evaluation only the logits of one chunk exist at a time.
void VocabPart::find_logits(Run& run, Tensor x, const VocabStatistics& all, Tensor logits) const {
  const Tensor w = run.weight(weight_);
  const Tensor labels = run.batch->labels.flat();
  for_each_chunk(run.stream, x.row_count(), rows_of_chunk(vocab_), [&](int64_t begin, int64_t end) {
    const Arena::Mark mark = run.scratch.mark();
    // In the slot's memory, where training keeps the logits, because a stage with parts alone has little scratch.
    const Arena::Mark keep_mark = run.keep->mark();
    const Tensor chunk = run.has_backward() ? logits.rows(begin, end)
                                            : run.keep->take(run.dtype, {end - begin, w.row_count()});
    compute_logits(run, form_, chunk, x.rows(begin, end), w);
    run.show(name_, "logits", chunk);
    const VocabStatistics sum = all.rows(begin, end);
    const VocabStatistics part =
        part_.first() ? sum : VocabStatistics::take(run.scratch, sum.max.dtype, end - begin);
    find_statistics(run, region_, chunk, labels.rows(begin, end), first_id_, vocab_, part);
    if (!part_.first()) merge_statistics(run, sum, part);
    run.scratch.release(mark);
    run.keep->release(keep_mark);
  });
}

void VocabPart::add_losses(Run& run, const VocabStatistics& all) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor losses = run.scratch.take(all.max.dtype, all.max.shape);
  const Tensor weights = run.batch->loss_weight.flat();
  run.ops.cross_entropy(run.stream, losses, all.max, all.sum, all.target);
  run.show(name_, VocabCrossEntropy::kLargestLogits, all.max);
  run.show(name_, VocabCrossEntropy::kSums, all.sum);
  run.show(name_, VocabCrossEntropy::kLabelLogits, all.target);
  run.show(name_, VocabCrossEntropy::kLosses, losses);
  if (samples_) {
    const Tensor sums = take_sample_sums(run, losses, run.scratch);
    run.show(name_, SampleLoss::kSums, sums);
    samples_->add(run, sums);
    return run.scratch.release(mark);
  }
  run.ops.weighted_sum(run.stream, run.loss_sum, losses, weights);
  run.ops.fill(run.stream, losses, 1.0);
  run.ops.weighted_sum(run.stream, run.weight_sum, losses, weights);
  run.scratch.release(mark);
}

Tensor VocabPart::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor x = saved[x_];
  const Tensor statistics = part_.last() ? saved[statistics_] : with_statistics(run, dy).statistics;
  const VocabStatistics all = VocabStatistics::in(statistics, rows_of(run));
  const Tensor logits = saved[logits_];
  find_gradient(run, all, logits);
  run.show(name_, "gradient of the logits", logits);
  const Tensor later = part_.last() ? Tensor{} : with_statistics(run, dy).activation;
  if (part_.first()) {
    const Tensor dx = run.flow->take(run.dtype, x.shape);
    add_input_gradient(run, dx, later, logits);
    return dx;
  }
  const WithStatistics dx = take(run, *run.flow, x);
  add_input_gradient(run, dx.activation, later, logits);
  run.ops.copy(run.stream, dx.statistics, statistics);
  return dx.all;
}

void VocabPart::find_gradient(Run& run, const VocabStatistics& all, Tensor logits) const {
  const Arena::Mark mark = run.scratch.mark();
  Tensor factors;
  if (samples_) {
    const Tensor losses = run.scratch.take(all.max.dtype, all.max.shape);
    run.ops.cross_entropy(run.stream, losses, all.max, all.sum, all.target);
    factors = run.scratch.take(DType::F64, {run.batch->samples()});
    samples_->find_factors(run, factors, take_sample_sums(run, losses, run.scratch));
  }
  if (form_.soft_cap == 0) {
    find_gradient(run, all, logits, logits, 0, logits.row_count(), factors);
  } else {
    for_each_chunk(run.stream, logits.row_count(), rows_of_chunk(vocab_), [&](int64_t begin, int64_t end) {
      const Arena::Mark chunk_mark = run.scratch.mark();
      const Tensor chunk = logits.rows(begin, end);
      const Tensor gradient = run.scratch.take(run.dtype, chunk.shape);
      find_gradient(run, all, gradient, chunk, begin, end, factors);
      undo_soft_cap(run, form_, gradient, chunk);
      run.ops.copy(run.stream, chunk, gradient);
      run.scratch.release(chunk_mark);
    });
  }
  run.scratch.release(mark);
}

void VocabPart::find_gradient(Run& run, const VocabStatistics& all, Tensor gradient, Tensor logits,
                              int64_t begin, int64_t end, Tensor factors) const {
  const Tensor labels = run.batch->labels.flat();
  const Tensor weights = run.batch->loss_weight.flat();
  const auto find = [&](int64_t from, int64_t to, const Factor& factor) {
    const VocabStatistics rows = all.rows(from, to);
    run.ops.cross_entropy_backward(run.stream, gradient.rows(from - begin, to - begin),
                                   logits.rows(from - begin, to - begin), rows.max, rows.sum,
                                   labels.rows(from, to), weights.rows(from, to), factor, first_id_, vocab_);
  };
  if (samples_)
    for_each_sample(run, begin, end, factors, find);
  else
    find(begin, end, run.loss_factor());
}

// dx = this part's gradient of x + `later`, the gradient from later parts, if there are any.
void VocabPart::add_input_gradient(Run& run, Tensor dx, Tensor later, Tensor logits) const {
  const Arena::Mark mark = run.scratch.mark();
  const Region::Sum sum = region_.take_sum(run, run.scratch, logits.row_count(), dx.last_dim());
  run.ops.gemm(run.stream, sum.partial, logits, false, run.weight(weight_), false, form_.scale, 0.0);
  run.show(name_, "input gradient", sum.partial);
  region_.add_up(run, sum, run.stream);
  if (!part_.last())
    run.ops.add(run.stream, dx, later, sum.result);
  else
    run.ops.copy(run.stream, dx, sum.result);
  run.scratch.release(mark);
}

void VocabPart::backward_weight(Run& run, Saved& saved) const {
  if (!run.trains(weight_)) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor x = region_.gather_rows(run, saved[x_], run.scratch, run.stream);
  const bool adds = run.adds_to(weight_);
  run.ops.gemm(run.stream, run.grad(weight_), saved[logits_], true, x, false, form_.scale, adds ? 1.0 : 0.0);
  run.scratch.release(mark);
}

// The norm's output is kept, because all parts read it, also in backward.
Tensor NormedVocabPart::forward(Run& run, Tensor x, Saved& saved) const {
  const WithStatistics y = part_.take(run, *run.keep, x);
  norm_.forward_to(run, y.activation, x, saved);
  return part_.forward(run, y.all, saved);
}

Tensor NormedVocabPart::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return norm_.backward_input(run, part_.backward_input(run, dy, saved), saved);
}

void NormedVocabPart::backward_weight(Run& run, Saved& saved) const {
  part_.backward_weight(run, saved);
  norm_.backward_weight(run, saved);
}

}  // namespace trifold
