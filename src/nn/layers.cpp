#include "nn/layers.h"

#include <cmath>

namespace trifold {

LayerNorm::LayerNorm(BlockBuilder& builder, const std::string& name, int64_t width, double eps)
    : name_(name),
      eps_(eps),
      gain_(builder.replicated(name + ".gain", {width}, {Init::Kind::Ones}, false)),
      bias_(builder.replicated(name + ".bias", {width}, {Init::Kind::Zeros}, false)),
      x_(builder.slot()),
      mean_(builder.slot()),
      rstd_(builder.slot()),
      dy_(builder.slot()) {}

Tensor LayerNorm::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor y = run.keep.take(run.dtype, x.shape);
  forward_to(run, y, x, saved);
  return y;
}

void LayerNorm::forward_to(Run& run, Tensor y, Tensor x, Saved& saved) const {
  saved[x_] = x;
  saved[mean_] = run.keep.take(accumulate_type(run.dtype), {x.row_count()});
  saved[rstd_] = run.keep.take(accumulate_type(run.dtype), {x.row_count()});
  run.ops.layer_norm(run.stream, y, saved[mean_], saved[rstd_], x, run.weight(gain_), run.weight(bias_),
                     eps_);
  run.show(name_, "output", y);
}

Tensor LayerNorm::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const Tensor dx = run.flow.take(run.dtype, dy.shape);
  run.ops.layer_norm_backward(run.stream, dx, dy, saved[x_], saved[mean_], saved[rstd_], run.weight(gain_));
  run.show(name_, "input gradient", dx);
  return dx;
}

void LayerNorm::backward_weight(Run& run, Saved& saved) const {
  run.ops.layer_norm_backward_weight(run.stream, run.grad(gain_), run.grad(bias_), saved[dy_], saved[x_],
                                     saved[mean_], saved[rstd_]);
}

Tensor Gelu::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Tensor y = run.keep.take(run.dtype, x.shape);
  run.ops.gelu(run.stream, y, x);
  run.show(name_, "output", y);
  return y;
}

Tensor Gelu::backward_input(Run& run, Tensor dy, Saved& saved) const {
  run.ops.gelu_backward(run.stream, dy, dy, saved[x_]);
  run.show(name_, "input gradient", dy);
  return dy;
}

Dropout DropoutAdd::mask(const Run& run, Tensor x) const {
  const int64_t first_row = first_global_row(*run.batch, row_part_, x.row_count());
  return {probability_, key_, static_cast<uint64_t>(first_row * x.last_dim())};
}

Tensor DropoutAdd::forward(Run& run, Tensor residual, Tensor x) const {
  const Tensor y = run.keep.take(run.dtype, x.shape);
  if (probability_ > 0 && run.training)
    run.ops.dropout_add(run.stream, y, residual, x, mask(run, x));
  else
    run.ops.add(run.stream, y, residual, x);
  run.show(name_, "output", y);
  return y;
}

Tensor DropoutAdd::backward_input(Run& run, Tensor dy) const {
  if (probability_ == 0 || !run.training) return dy;
  const Tensor dx = run.flow.take(run.dtype, dy.shape);
  run.ops.dropout(run.stream, dx, dy, mask(run, dy));
  run.show(name_, "input gradient", dx);
  return dx;
}

AttentionCore::AttentionCore(BlockBuilder& builder, const std::string& name, int64_t global_heads,
                             int64_t head_dim, double dropout)
    : name_(name),
      global_heads_(global_heads),
      heads_(global_heads / builder.mesh().size(Axis::Tp)),
      first_head_(heads_ * builder.mesh().coord(Axis::Tp)),
      head_dim_(head_dim),
      dropout_(dropout),
      key_(philox_key(builder.seed(), name)),
      qkv_(builder.slot()),
      out_(builder.slot()),
      lse_(builder.slot()) {
  const int tp = builder.mesh().size(Axis::Tp);
  check(global_heads % tp == 0, "{}: {} attention heads cannot be cut evenly over {} tensor-parallel ranks",
        name, global_heads, tp);
}

Attention AttentionCore::shape(const Run& run) const {
  Attention how;
  how.batch = run.batch->samples();
  how.seq = run.batch->seq_length();
  how.heads = how.kv_heads = heads_;
  how.head_dim = head_dim_;
  how.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  how.dropout = {run.training ? dropout_ : 0.0, key_, 0};
  how.first_sample = run.batch->first_sample;
  how.first_head = first_head_;
  how.global_heads = global_heads_;
  return how;
}

Tensor AttentionCore::forward(Run& run, Tensor qkv, Saved& saved) const {
  const Attention how = shape(run);
  saved[qkv_] = qkv;
  saved[out_] = run.keep.take(run.dtype, {qkv.row_count(), heads_ * head_dim_});
  saved[lse_] = run.keep.take(accumulate_type(run.dtype), {how.batch, heads_, how.seq});
  run.ops.attention(run.stream, saved[out_], saved[lse_], qkv, how);
  run.show(name_, "output", saved[out_]);
  return saved[out_];
}

Tensor AttentionCore::backward_input(Run& run, Tensor dout, Saved& saved) const {
  const Tensor dqkv = run.flow.take(run.dtype, saved[qkv_].shape);
  run.ops.attention_backward(run.stream, dqkv, dout, saved[qkv_], saved[out_], saved[lse_], shape(run));
  run.show(name_, "input gradient", dqkv);
  return dqkv;
}

}  // namespace trifold
