#include "nn/experts.h"

namespace trifold {

Experts::Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
                 int64_t ffn, ActivationKind activation, Init up, Init down)
    : name_(name),
      shape_(shape),
      ffn_(ffn),
      activation_(activation),
      router_(builder.replicated(name + ".router.weight", {shape.experts, width}, up, true)),
      up_(builder.replicated(name + ".experts.up.weight",
                             {shape.experts, activation == ActivationKind::Swiglu ? 2 * ffn : ffn, width}, up,
                             true)),
      down_(builder.replicated(name + ".experts.down.weight", {shape.experts, width, ffn}, down, true)),
      x_(builder.slot()),
      logits_(builder.slot()),
      gates_(builder.slot()),
      chosen_(builder.slot()),
      counts_(builder.slot()),
      first_(builder.slot()),
      row_(builder.slot()),
      token_(builder.slot()),
      inner_(builder.slot()),
      dy_(builder.slot()),
      dlogits_(builder.slot()),
      dinner_(builder.slot()) {
  check(builder.mesh().size(Axis::Tp) == 1, "{}: experts cannot be cut over {} tensor-parallel ranks", name,
        builder.mesh().size(Axis::Tp));
}

Tensor Experts::take_rows(Run& run, const Saved& saved, int64_t columns) const {
  return run.scratch.take(run.dtype, {saved[token_].elements(), columns});
}

void Experts::activate(Run& run, Tensor to, Saved& saved) const {
  const auto apply = activation_ == ActivationKind::Swiglu    ? run.ops.swiglu
                     : activation_ == ActivationKind::GeluErf ? run.ops.gelu_erf
                                                              : run.ops.gelu;
  apply(run.stream, to, saved[inner_]);
}

void Experts::route(Run& run, Saved& saved) const {
  const Tensor logits = saved[logits_];
  run.ops.route(run.stream, saved[gates_], saved[chosen_], logits, {}, shape_.router);
  run.ops.sort_choices(run.stream, saved[first_], saved[row_], saved[token_], saved[chosen_]);
  if (!run.has_backward()) return;
  const Tensor balance = run.scratch.take(logits.dtype, {logits.row_count()});
  const Tensor z = run.scratch.take(logits.dtype, {logits.row_count()});
  run.ops.router_losses(run.stream, balance, z, saved[counts_], logits, run.batch->seq_length(),
                        shape_.router);
  if (run.router_sums.rank() == 0) return;
  run.ops.weighted_sum(run.stream, run.router_sums.rows(0, 1), balance, run.batch->loss_weight.flat());
  run.ops.weighted_sum(run.stream, run.router_sums.rows(1, 2), z, run.batch->loss_weight.flat());
}

void Experts::take_kept(Run& run, Tensor x, Saved& saved) const {
  const int64_t tokens = x.row_count();
  const int64_t choices = shape_.router.choices;
  const DType wide = accumulate_type(run.dtype);
  saved[x_] = x;
  saved[logits_] = run.keep.take(wide, {tokens, shape_.experts});
  saved[gates_] = run.keep.take(wide, {tokens, choices});
  saved[chosen_] = run.keep.take(DType::I32, {tokens, choices});
  saved[counts_] = run.keep.take(DType::I32, {run.batch->samples(), shape_.experts});
  saved[first_] = run.keep.take(DType::I32, {shape_.experts + 1});
  saved[row_] = run.keep.take(DType::I32, {tokens, choices});
  saved[token_] = run.keep.take(DType::I32, {tokens * choices});
  saved[inner_] = run.keep.take(run.dtype, {tokens * choices, run.weight(up_).dim(1)});
}

void Experts::mix(Run& run, Tensor y, Saved& saved) const {
  const Tensor x = saved[x_];
  const Arena::Mark mark = run.scratch.mark();
  run.ops.gemm(run.stream, saved[logits_], x, false, run.weight(router_), true, 1, 0);
  run.show(name_ + ".router", "output", saved[logits_]);
  route(run, saved);
  const Tensor rows = take_rows(run, saved, x.last_dim());
  const Tensor a = take_rows(run, saved, ffn_);
  run.ops.embedding(run.stream, rows, x, saved[token_], 0, false);
  run.ops.expert_product(run.stream, saved[inner_], rows, run.weight(up_), saved[first_], true);
  run.show(name_ + ".experts.up", "output", saved[inner_]);
  activate(run, a, saved);
  run.ops.gate_rows(run.stream, a, a, saved[gates_], saved[row_]);
  run.ops.expert_product(run.stream, rows, a, run.weight(down_), saved[first_], true);
  run.ops.sum_choices(run.stream, y, rows, saved[row_], false);
  run.scratch.release(mark);
  run.show(name_, "output", y);
}

Tensor Experts::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor y = run.keep.take(run.dtype, x.shape);
  take_kept(run, x, saved);
  mix(run, y, saved);
  return y;
}

Tensor Experts::forward_added(Run& run, const DropoutAdd& add, Tensor residual, Tensor x, Tensor plus,
                              Saved& saved) const {
  const Tensor sum = run.output().take(run.dtype, x.shape);
  take_kept(run, x, saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor y = run.scratch.take(run.dtype, x.shape);
  mix(run, y, saved);
  if (plus.rank() > 0) run.ops.add(run.stream, y, y, plus);
  add.forward_to(run, sum, residual, y);
  run.scratch.release(mark);
  return sum;
}

Tensor Experts::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const Tensor dx = run.flow.take(run.dtype, dy.shape);
  saved[dlogits_] = run.flow.take(run.dtype, saved[logits_].shape);
  saved[dinner_] = run.flow.take(run.dtype, saved[inner_].shape);

  const Arena::Mark mark = run.scratch.mark();
  const Tensor rows = take_rows(run, saved, dy.last_dim());
  const Tensor a = take_rows(run, saved, ffn_);
  const Tensor da = take_rows(run, saved, ffn_);
  const Tensor dgates = run.scratch.take(saved[gates_].dtype, saved[gates_].shape);
  run.ops.embedding(run.stream, rows, dy, saved[token_], 0, false);
  run.ops.expert_product(run.stream, da, rows, run.weight(down_), saved[first_], false);
  activate(run, a, saved);
  run.ops.gate_rows_backward(run.stream, da, dgates, da, a, saved[gates_], saved[row_]);
  const auto slope = activation_ == ActivationKind::Swiglu    ? run.ops.swiglu_backward
                     : activation_ == ActivationKind::GeluErf ? run.ops.gelu_erf_backward
                                                              : run.ops.gelu_backward;
  slope(run.stream, saved[dinner_], da, saved[inner_]);
  run.ops.route_backward(run.stream, saved[dlogits_], dgates, saved[gates_], saved[chosen_], saved[logits_],
                         saved[counts_], run.batch->loss_weight.flat(), run.loss_factor(), shape_.losses,
                         shape_.router);
  run.show(name_ + ".router", "gradient of the output", saved[dlogits_]);
  run.ops.gemm(run.stream, dx, saved[dlogits_], false, run.weight(router_), false, 1, 0);
  run.ops.expert_product(run.stream, rows, saved[dinner_], run.weight(up_), saved[first_], false);
  run.ops.sum_choices(run.stream, dx, rows, saved[row_], true);
  run.scratch.release(mark);
  run.show(name_, "input gradient", dx);
  return dx;
}

void Experts::backward_weight(Run& run, Saved& saved) const {
  const Tensor x = saved[x_];
  const Arena::Mark mark = run.scratch.mark();
  const Tensor rows = take_rows(run, saved, x.last_dim());
  const Tensor a = take_rows(run, saved, ffn_);
  run.ops.gemm(run.stream, run.grad(router_), saved[dlogits_], true, x, false, 1,
               run.adds_to(router_) ? 1 : 0);
  run.ops.embedding(run.stream, rows, x, saved[token_], 0, false);
  run.ops.expert_product_weight(run.stream, run.grad(up_), saved[dinner_], rows, saved[first_],
                                run.adds_to(up_));
  activate(run, a, saved);
  run.ops.gate_rows(run.stream, a, a, saved[gates_], saved[row_]);
  run.ops.embedding(run.stream, rows, saved[dy_], saved[token_], 0, false);
  run.ops.expert_product_weight(run.stream, run.grad(down_), rows, a, saved[first_], run.adds_to(down_));
  run.scratch.release(mark);
}

}  // namespace trifold
