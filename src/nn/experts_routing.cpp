// What the router of a mixture of experts decides: gates, the order of rows, dropped choices, and counts of all these.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "nn/experts.h"

namespace trifold {

Tensor Experts::own(Tensor all) const {
  const int64_t rows = all.dim(0) / parts_;
  return all.rows(part_ * rows, (part_ + 1) * rows);
}

Tensor Experts::gathered(Run& run, Arena& arena, Tensor mine) const {
  if (parts_ == 1) return mine;
  const Tensor all = arena.take(mine.dtype, {mine.dim(0) * parts_, mine.dim(1)});
  run.mesh.comm({Axis::Tp}).all_gather(all, mine, run.stream);
  return all;
}

namespace {

void scale_by_position(const Run& run, Tensor y, Tensor x, double low, double high, PhiloxKey key, int part) {
  for_each_dropout(run, 0, key, part, x, [&](int64_t begin, int64_t end, const Dropout& which) {
    run.ops.scale_uniform(run.stream, y.rows(begin, end), x.rows(begin, end), low, high, which);
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
  run.ops.gemm(run.stream, logits, router_input(run, x), false, run.weight(router_), true, 1, 0);
  run.scratch.release(mark);
  run.show(router_name_, "output", logits);
  if (!shape_.random_choices || !run.has_backward()) return;
  const double most = std::sqrt(3.0);  // of uniform numbers with variance 1
  run.ops.fill(run.stream, logits, 1.0);
  scale_by_position(run, logits, logits, -most, most, random_key_, part_);
}

void Experts::route(Run& run, Saved& saved) const {
  const Tensor logits = saved[logits_];
  const Tensor bias = bias_ ? run.params.exact(*bias_) : Tensor{};
  run.ops.route(run.stream, saved[gates_], saved[chosen_], logits, bias, shape_.router);
  sort_own(run, saved);
  if (!run.has_backward()) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor balance = run.scratch.take(logits.dtype, {logits.row_count()});
  const Tensor z = run.scratch.take(logits.dtype, {logits.row_count()});
  Router how = shape_.router;
  if (context_ > 1) {
    count_over_context(run, balance, z, saved);
    how.counted = true;
  }
  run.ops.router_losses(run.stream, balance, z, saved[counts_], logits,
                        logits.row_count() / balance_groups(run), how);
  if (run.router_sums.rank() > 0) {
    run.ops.weighted_sum(run.stream, run.router_sums.rows(0, 1), balance, run.batch->loss_weight.flat());
    run.ops.weighted_sum(run.stream, run.router_sums.rows(1, 2), z, run.batch->loss_weight.flat());
  }
  run.scratch.release(mark);
}

void Experts::sort_own(Run& run, const Saved& saved) const {
  const Tensor chosen = saved[chosen_];
  const Arena::Mark mark = run.scratch.mark();
  Tensor taken = chosen;
  if (drops(run)) {
    check(context_ == 1,
          "{}: capacity is counted over whole sequences, which {} context-parallel ranks do not have", name_,
          context_);
    const int64_t ends = run.batch->samples() * (shape_.experts + 1);
    taken = run.scratch.take(DType::I32, chosen.shape);
    const Tensor scratch = run.scratch.take(DType::I32, {chosen.elements() + ends});
    drop_choices(run.stream, taken, scratch, chosen, saved[gates_], shape_.experts, run.batch->seq_length(),
                 shape_.capacity);
  }
  run.ops.sort_choices(run.stream, saved[own_.first], saved[own_.row], saved[own_.token], own(taken));
  run.scratch.release(mark);
}

void Experts::clear_dropped(Run& run, Tensor rows, const Saved& saved) const {
  const Tensor first = saved[own_.first];
  if (first.elements() == shape_.experts + 1) return;
  run.stream.run([rows, first, experts = shape_.experts] {
    const int64_t kept = first.as<int32_t>()[experts];
    const size_t row = rows.bytes() / static_cast<size_t>(rows.dim(0));
    std::memset(static_cast<std::byte*>(rows.data) + static_cast<size_t>(kept) * row, 0,
                static_cast<size_t>(rows.dim(0) - kept) * row);
  });
}

void Experts::count(Run& run, const Saved& saved) const {
  if (run.choice_counts.rank() == 0 || !run.has_backward()) return;
  const Tensor counts = run.choice_counts.rows(block_, block_ + 1).flat();
  const int64_t experts = shape_.experts;
  run.ops.add_choice_counts(run.stream, counts.rows(0, experts), own(saved[chosen_]));
  const Tensor first = saved[own_.first];
  const int64_t rounds = exchange_ ? exchange_->rounds(run, saved[arriving_]) : 1;
  auto* sums = counts.as<double>();
  sums[experts] = std::max(sums[experts], static_cast<double>(rounds));
  if (!drops(run)) return;
  run.stream.run([sums, experts, choices = saved[own_.token].elements(), first] {
    sums[experts + 1] += static_cast<double>(choices - first.as<int32_t>()[experts]);
  });
}

// Counts are whole numbers: their sums have no order.
void Experts::count_over_context(Run& run, Tensor balance, Tensor z, const Saved& saved) const {
  const Tensor counts = saved[counts_];
  const Tensor logits = saved[logits_];
  run.ops.router_losses(run.stream, balance, z, counts, logits, logits.row_count() / balance_groups(run),
                        shape_.router);
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
