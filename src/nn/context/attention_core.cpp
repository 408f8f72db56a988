#include "nn/context/attention_core.h"

#include <algorithm>
#include <cmath>

#include "nn/context/context_rows.h"

namespace trifold {

AttentionHeads::AttentionHeads(const Mesh& mesh, const std::string& name, int64_t all, int64_t all_kv,
                               int64_t width, std::optional<int64_t> values, std::optional<int64_t> keys)
    : heads(all),
      kv_heads(all_kv),
      head_dim(width),
      value_dim(values.value_or(width)),
      key_dim(keys.value_or(width)) {
  const int tp = mesh.size(Axis::Tp);
  check(heads % tp == 0, "{}: {} attention heads cannot be cut evenly over {} tensor-parallel ranks", name,
        heads, tp);
  check(heads % kv_heads == 0, "{}: {} query heads are not a multiple of {} key heads", name, heads,
        kv_heads);
  check(kv_heads % tp == 0 || tp % kv_heads == 0,
        "{}: {} key heads can neither be cut evenly over {} tensor-parallel ranks "
        "nor be held by as many ranks each",
        name, kv_heads, tp);
  local = heads / tp;
  local_kv = std::max<int64_t>(1, kv_heads / tp);
  first = local * mesh.coord(Axis::Tp);
}

AttentionCore::AttentionCore(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads,
                             double dropout, const AttentionScores& scores, ContextShape context)
    : name_(name),
      heads_(heads),
      dropout_(dropout),
      scores_(scores),
      key_(philox_key(builder.seed(), name)),
      qkv_(builder.slot()),
      out_(builder.slot()),
      lse_(builder.slot()) {
  if (scores.sinks) {
    check(!drops_zeros(), "{}: sinks need values as wide as keys", name);
    sinks_ = builder.sharded(name + ".sinks", {heads.heads}, 0, {Init::Kind::Zeros}, false);
    dsinks_ = builder.slot();
  }
  declare_cache(builder);
  if (builder.mesh().size(Axis::Cp) == 1) return;
  if (context.exchange == ContextExchange::AllToAll)
    exchanged_.emplace(builder.mesh(), name, heads.local, heads.local_kv, heads.head_dim);
  else if (context.exchange == ContextExchange::Ring)
    ring_.emplace(builder.mesh(), heads.local * heads.head_dim, 2 * heads.local_kv * heads.head_dim);
  else
    keys_.emplace(builder.mesh(), heads.local, heads.local_kv, heads.head_dim, context.threads);
  const bool causal = scores.sight == AttentionSight::Causal;
  if (!exchanged_ && scores.left >= 0 && (causal || scores.right >= 0))
    window_.emplace(builder.mesh(), heads.local * heads.head_dim, 2 * heads.local_kv * heads.head_dim,
                    scores.left, causal ? 0 : scores.right);
}

void AttentionCore::declare_cache(BlockBuilder& builder) {
  if (scores_.sight != AttentionSight::Causal)
    builder.needs_whole_samples("attention that sees later positions");
  else if (builder.mesh().size(Axis::Cp) > 1)
    builder.needs_whole_samples("attention over context-parallel ranks");
  else
    cached_ = builder.cached_rows(2 * heads_.local_kv * heads_.head_dim);
}

Attention AttentionCore::shape(const Run& run) const {
  Attention attention;
  attention.batch = run.batch->samples();
  attention.seq = run.batch->held_rows().length();
  if (keys_ || ring_ || run.key_cache != nullptr) attention.rows = run.batch->rows;
  attention.heads = exchanged_ ? exchanged_->heads() : heads_.local;
  attention.kv_heads = exchanged_ ? exchanged_->kv_heads() : heads_.local_kv;
  attention.head_dim = heads_.head_dim;
  attention.key_dim = heads_.key_dim;
  attention.value_dim = heads_.value_dim;
  if (scores_.sight == AttentionSight::Both) {
    attention.causal = false;
    attention.lengths = run.batch->lengths;
  } else {
    attention.first_keys = run.batch->document_begin;
  }
  // A window that covers all positions is none, so that it has the kernels of attention without a window.
  const auto limit = [&](int64_t keys) { return keys >= attention.seq - 1 ? -1 : keys; };
  attention.left = limit(scores_.left);
  attention.right = limit(scores_.right);
  attention.soft_cap = scores_.soft_cap;
  attention.scale = scores_.scale / std::sqrt(static_cast<double>(heads_.head_dim));
  attention.dropout = {run.training ? dropout_ : 0.0, key_, 0};
  attention.sample = run.batch->sample;
  attention.first_sample = attention.sample.data != nullptr ? 0 : run.batch->first_sample;
  attention.first_head = heads_.first + (exchanged_ ? exchanged_->first() : 0);
  attention.global_heads = heads_.heads;
  return attention;
}

namespace {

// Reshapes x to a row for each head of each row.
Tensor by_head(Tensor rows, int64_t width) { return rows.reshape({rows.elements() / width, width}); }

}  // namespace

Tensor AttentionCore::forward(Run& run, Tensor qkv, Saved& saved) const {
  const Tensor out = run.keep->take(run.dtype, {qkv.row_count(), heads_.local * heads_.head_dim});
  if (exchanged_)
    forward_exchanging(run, out, qkv, saved);
  else
    forward_here(run, out, qkv, saved);
  if (!drops_zeros()) {
    run.show(name_, "output", out);
    return out;
  }
  const Tensor values = run.keep->take(run.dtype, {qkv.row_count(), heads_.local * heads_.value_dim});
  run.ops.fit_columns(run.stream, by_head(values, heads_.value_dim), by_head(out, heads_.head_dim));
  run.show(name_, "output", values);
  return values;
}

void AttentionCore::forward_here(Run& run, Tensor out, Tensor qkv, Saved& saved) const {
  const Attention attention = shape(run);
  saved[qkv_] = qkv;
  saved[out_] = out;
  saved[lse_] =
      run.keep->take(accumulate_type(run.dtype), {attention.batch, attention.heads, attention.queries()});
  if (run.key_cache != nullptr)
    forward_cached(run, out, saved[lse_], qkv, attention);
  else if (window_ && window_->saves(run))
    window_->forward(run, out, saved[lse_], qkv, attention);
  else if (ring_)
    ring_->forward(run, out, saved[lse_], qkv, attention);
  else if (keys_)
    keys_->forward(run, out, saved[lse_], qkv, attention);
  else
    run.ops.attention(run.stream, out, saved[lse_], qkv, attention);
  if (sinks_) run.ops.attention_sinks(run.stream, out, saved[lse_], sinks_here(run));
}

void AttentionCore::forward_cached(Run& run, Tensor out, Tensor lse, Tensor qkv, Attention attention) const {
  check(cached_.has_value() && attention.batch == 1 && attention.first_keys.data == nullptr,
        "{}: this attention cannot continue a sequence of {} samples from a cache", name_, attention.batch);
  const RowRun now = run.batch->held_rows().runs().front();
  const Tensor held = run.key_cache->rows(*cached_);
  const int64_t columns = held.last_dim();
  move_columns(run, held.rows(now.begin, now.end()), 0, qkv, qkv.last_dim() - columns, columns);
  attention.key_values = held.rows(0, now.end());
  run.ops.attention(run.stream, out, lse, qkv, attention);
}

// Saves all positions of this rank's heads for backward.
void AttentionCore::forward_exchanging(Run& run, Tensor out, Tensor qkv, Saved& saved) const {
  const Attention attention = shape(run);
  saved[qkv_] = exchanged_->projections_of_heads(run, *run.keep, qkv);
  saved[out_] =
      run.keep->take(run.dtype, {attention.batch * attention.seq, attention.heads * attention.head_dim});
  saved[lse_] = run.keep->take(accumulate_type(run.dtype), {attention.batch, attention.heads, attention.seq});
  run.ops.attention(run.stream, saved[out_], saved[lse_], saved[qkv_], attention);
  if (sinks_) run.ops.attention_sinks(run.stream, saved[out_], saved[lse_], sinks_here(run));
  exchanged_->outputs_of_rows(run, out, saved[out_]);
}

Tensor AttentionCore::backward_input(Run& run, Tensor dout, Saved& saved) const {
  const Tensor dqkv = run.flow->take(run.dtype, {dout.row_count(), heads_.packed_columns()});
  if (sinks_) saved[*dsinks_] = run.flow->take(accumulate_type(run.dtype), {heads_.local});
  const Arena::Mark mark = run.scratch.mark();
  if (drops_zeros()) {
    const Tensor values = dout;
    dout = run.scratch.take(run.dtype, {values.row_count(), heads_.local * heads_.head_dim});
    run.ops.fit_columns(run.stream, by_head(dout, heads_.head_dim), by_head(values, heads_.value_dim));
  }
  backward_whole(run, dqkv, dout, saved);
  run.scratch.release(mark);
  run.show(name_, "input gradient", dqkv);
  return dqkv;
}

void AttentionCore::backward_whole(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const {
  if (exchanged_)
    backward_exchanging(run, dqkv, dout, saved);
  else
    backward_here(run, dqkv, dout, saved);
}

void AttentionCore::backward_here(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const {
  if (sinks_) keep_sink_gradient(run, dout, saved);
  const Attention attention = shape(run);
  if (window_ && window_->saves(run))
    return window_->backward(run, dqkv, dout, saved[qkv_], saved[out_], saved[lse_], attention);
  if (ring_) return ring_->backward(run, dqkv, dout, saved[qkv_], saved[out_], saved[lse_], attention);
  if (keys_) return keys_->backward(run, dqkv, dout, saved[qkv_], saved[out_], saved[lse_], attention);
  run.ops.attention_backward(run.stream, dqkv, dout, saved[qkv_], saved[out_], saved[lse_], attention);
}

void AttentionCore::backward_exchanging(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor gradient = run.scratch.take(run.dtype, saved[qkv_].shape);
  const Tensor of_heads = exchanged_->outputs_of_heads(run, run.scratch, dout);
  if (sinks_) keep_sink_gradient(run, of_heads, saved);
  run.ops.attention_backward(run.stream, gradient, of_heads, saved[qkv_], saved[out_], saved[lse_],
                             shape(run));
  exchanged_->projections_of_rows(run, dqkv, gradient);
  run.scratch.release(mark);
}

Tensor AttentionCore::here(Tensor of_heads) const {
  return exchanged_ ? of_heads.rows(exchanged_->first(), exchanged_->first() + exchanged_->heads())
                    : of_heads;
}

void AttentionCore::keep_sink_gradient(Run& run, Tensor dout, Saved& saved) const {
  const Tensor gradient = saved[*dsinks_];
  if (exchanged_) run.ops.fill(run.stream, gradient, 0);
  run.ops.attention_sinks_backward(run.stream, here(gradient), dout, saved[out_], saved[lse_],
                                   sinks_here(run));
}

void AttentionCore::backward_weight(Run& run, Saved& saved) const {
  if (!sinks_ || !run.trains(*sinks_)) return;
  const Tensor gradient = run.grad(*sinks_);
  if (run.adds_to(*sinks_))
    run.ops.add(run.stream, gradient, gradient, saved[*dsinks_]);
  else
    run.ops.copy(run.stream, gradient, saved[*dsinks_]);
}

}  // namespace trifold
