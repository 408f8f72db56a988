// Routing of Experts: gates, the order of rows, dropped choices, and counts of choices.
#include <algorithm>
#include <cmath>

#include "nn/context/context_rows.h"
#include "nn/experts.h"

namespace trifold {

Tensor Experts::own_rows(Tensor all) const {
  const int64_t rows = all.dim(0) / parts_;
  return all.rows(part_ * rows, (part_ + 1) * rows);
}

Tensor Experts::padding(const Run& run) {
  return run.batch->padding.data == nullptr ? Tensor{} : run.batch->padding.flat();
}

Tensor Experts::own_padding(const Run& run) const {
  const Tensor all = padding(run);
  return all.data == nullptr ? all : own_rows(all);
}

Tensor Experts::gathered(Run& run, Arena& arena, Tensor own) const {
  if (parts_ == 1) return own;
  const Tensor all = arena.take(own.dtype, {own.dim(0) * parts_, own.dim(1)});
  run.mesh.comm({Axis::Tp}).all_gather(all, own, run.stream);
  return all;
}

namespace {

void scale_by_position(const Run& run, Tensor y, Tensor x, double low, double high, PhiloxKey key, int part) {
  for_each_dropout(run, 0, key, part, x, [&](int64_t begin, int64_t end, const Dropout& keys) {
    run.ops.scale_uniform(run.stream, y.rows(begin, end), x.rows(begin, end), low, high, keys);
  });
}

}  // namespace

void Experts::jitter(Run& run, Tensor y, Tensor x) const {
  scale_by_position(run, y, x, 1 - shape_.jitter, 1 + shape_.jitter, jitter_key_, part_);
}

Tensor Experts::router_input(Run& run, Tensor x) const {
  if (!jitters(run)) return x;
  const Tensor y = run.scratch.take(x.dtype, x.shape);
  jitter(run, y, x);
  return y;
}

void Experts::compute_logits(Run& run, Tensor logits, Tensor x) const {
  const Arena::Mark mark = run.scratch.mark();
  if (router_bias_) {
    const Tensor bias = run.scratch.take(logits.dtype, {shape_.experts});
    run.ops.convert(run.stream, bias, run.weight(*router_bias_));
    run.ops.fill_rows(run.stream, logits, bias);
  }
  run.ops.gemm(run.stream, logits, router_input(run, x), false, run.weight(router_), true, 1,
               router_bias_ ? 1 : 0);
  run.scratch.release(mark);
  run.show(router_name_, "output", logits);
  if (!shape_.random_choices || !run.has_backward()) return;
  const double most = std::sqrt(3.0);  // U(-most, most) has variance 1
  run.ops.fill(run.stream, logits, 1.0);
  scale_by_position(run, logits, logits, -most, most, random_key_, part_);
}

void Experts::route(Run& run, Saved& saved) const {
  const Tensor logits = saved[logits_];
  const Tensor bias = bias_ ? run.params.exact(*bias_) : Tensor{};
  run.ops.route(run.stream, saved[gates_], saved[chosen_], logits, bias, shape_.router);
  sort_choices(run, saved);
  if (!run.has_backward()) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor balance = run.scratch.take(logits.dtype, {logits.row_count()});
  const Tensor z = run.scratch.take(logits.dtype, {logits.row_count()});
  Router router = shape_.router;
  router.counted = find_counts(run, balance, z, saved);
  run.ops.router_losses(run.stream, balance, z, saved[counts_], logits, padding(run),
                        logits.row_count() / balance_groups(run), router);
  if (run.loss_terms.rank() > 0) {
    const Tensor weights = run.batch->loss_weight.flat();
    run.ops.weighted_sum(run.stream, run.loss_term(balance_), balance, weights);
    run.ops.weighted_sum(run.stream, run.loss_term(z_), z, weights);
  }
  run.scratch.release(mark);
}

namespace {

// Gathers `own` [own rows, columns] over the context ranks, in scratch, ordered by position within each sample.
Tensor in_order_of_all(Run& run, Tensor own) {
  const Shape all{rows_of_all(run), own.dim(1)};
  const Tensor in_order = run.scratch.take(own.dtype, all);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor by_rank = run.scratch.take(own.dtype, all);
  run.mesh.comm({Axis::Cp}).all_gather(by_rank, own, run.stream);
  to_order(run, in_order, by_rank);
  run.scratch.release(mark);
  return in_order;
}

}  // namespace

Tensor Experts::choices_after_drops(Run& run, const Saved& saved) const {
  const Tensor chosen = saved[chosen_], gates = saved[gates_];
  const int64_t seq = run.batch->held_rows().length();
  const ExpertLimit limit{shape_.experts, seq,
                          expert_capacity(shape_.capacity.factor, seq, shape_.router.choices, shape_.experts),
                          shape_.capacity.kept};
  if (context_ == 1) {
    const Tensor result = run.scratch.take(DType::I32, chosen.shape);
    run.ops.drop_choices(run.stream, result, chosen, gates, limit);
    return result;
  }
  const Tensor by_rank = run.scratch.take(DType::I32, {rows_of_all(run), chosen.dim(1)});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor in_order = run.scratch.take(DType::I32, by_rank.shape);
  const Tensor all_chosen = in_order_of_all(run, chosen), all_gates = in_order_of_all(run, gates);
  run.ops.drop_choices(run.stream, in_order, all_chosen, all_gates, limit);
  to_ranks(run, by_rank, in_order);
  run.scratch.release(mark);
  const int64_t first = run.mesh.coord(Axis::Cp) * chosen.dim(0);
  return by_rank.rows(first, first + chosen.dim(0));
}

void Experts::sort_choices(Run& run, const Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor choices = own_rows(drops(run) ? choices_after_drops(run, saved) : saved[chosen_]);
  run.ops.sort_choices(run.stream, saved[own_.first], saved[own_.row], saved[own_.token], choices);
  if (drops(run) && run.counts())
    run.ops.add_choice_counts(run.stream, run.counter(*dropped_), choices, own_padding(run), shape_.experts);
  run.scratch.release(mark);
}

void Experts::clear_dropped(Run& run, Tensor rows, const Saved& saved) const {
  const Tensor first = saved[own_.first];
  const int64_t experts = shape_.experts;
  if (first.elements() > experts + 1) run.ops.clear_rows(run.stream, rows, first.rows(experts, experts + 1));
}

void Experts::count_choices(Run& run, const Saved& saved) const {
  if (!run.has_backward()) return;
  if (counts_last_batch()) count_preferred(run, saved);
  if (!run.counts()) return;
  run.ops.add_choice_counts(run.stream, run.counter(choices_), own_rows(saved[chosen_]), own_padding(run), 0);
  const int64_t rounds = exchange_ ? exchange_->rounds(run, saved[host_counts_]) : 1;
  double& most = *run.counter(rounds_).as<double>();
  most = std::max(most, static_cast<double>(rounds));
}

void Experts::count_preferred(Run& run, const Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  Tensor chosen = own_rows(saved[chosen_]);
  if (bias_ || shape_.router.groups > 1) {
    const Tensor logits = own_rows(saved[logits_]), gates = run.scratch.take(logits.dtype, chosen.shape);
    Router plain = shape_.router;
    plain.groups = plain.kept_groups = 1;
    chosen = run.scratch.take(DType::I32, chosen.shape);
    if (run.counts()) run.ops.route(run.stream, gates, chosen, logits, {}, plain);
  }
  if (run.counts())
    run.ops.add_choice_counts(run.stream, run.counter(*preferred_), chosen, own_padding(run), 0);
  run.scratch.release(mark);
}

bool Experts::find_counts(Run& run, Tensor balance, Tensor z, const Saved& saved) const {
  if (counts_last_batch()) {
    if (run.stream.mode() == Stream::Mode::Dry) return true;
    check(run.host_values.rank() > 0, "{}: the run has no expert assignments of the last global batch",
          name_);
    run.ops.copy(run.stream, saved[counts_].flat(), run.host_value(*last_choices_));
    return true;
  }
  if (context_ > 1) count_over_context(run, balance, z, saved);
  return context_ > 1;
}

// Counts are integers, so their sums do not depend on the order.
void Experts::count_over_context(Run& run, Tensor balance, Tensor z, const Saved& saved) const {
  const Tensor counts = saved[counts_];
  const Tensor logits = saved[logits_];
  run.ops.router_losses(run.stream, balance, z, counts, logits, padding(run),
                        logits.row_count() / balance_groups(run), shape_.router);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all = run.scratch.take(DType::I32, {context_, counts.elements()});
  run.mesh.comm({Axis::Cp}).all_gather(all, counts, run.stream);
  for (int rank = 0; rank < context_; ++rank) {
    if (rank == 0)
      run.ops.copy(run.stream, counts.flat(), all.rows(rank, rank + 1).flat());
    else
      run.ops.reduce(run.stream, counts.flat(), all.rows(rank, rank + 1).flat(), Reduce::Sum);
  }
  run.scratch.release(mark);
}

}  // namespace trifold
