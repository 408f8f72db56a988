#include "nn/experts.h"

namespace trifold {

Experts::Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
                 int64_t ffn, ActivationKind activation, Init up, Init down)
    : name_(name),
      shape_(shape),
      ffn_(ffn),
      activation_(activation),
      parts_(builder.sequence_parallel() ? builder.mesh().size(Axis::Tp) : 1),
      part_(builder.row_part()),
      exchange_(builder.mesh().size(Axis::Ep) > 1
                    ? std::optional<ExchangedRows>(std::in_place, builder.mesh(), name, shape.experts,
                                                   shape.router.choices)
                    : std::nullopt),
      router_(builder.replicated(name + ".router.weight", {shape.experts, width}, up, true)),
      up_(builder.of_experts(name + ".experts.up.weight",
                             {shape.experts, activation == ActivationKind::Swiglu ? 2 * ffn : ffn, width}, up,
                             true)),
      down_(builder.of_experts(name + ".experts.down.weight", {shape.experts, width, ffn}, down, true)),
      x_(builder.slot()),
      logits_(builder.slot()),
      gates_(builder.slot()),
      chosen_(builder.slot()),
      counts_(builder.slot()),
      own_{builder.slot(), builder.slot(), builder.slot()},
      arriving_(builder.slot()),
      here_(exchange_ ? Order{builder.slot(), builder.slot(), builder.slot()} : own_),
      gates_here_(builder.slot()),
      inner_(builder.slot()),
      dy_(builder.slot()),
      dlogits_(builder.slot()),
      dinner_(builder.slot()) {
  check(builder.mesh().size(Axis::Tp) == parts_,
        "{}: {} tensor-parallel ranks would all send the same rows to experts without sequence parallelism",
        name, builder.mesh().size(Axis::Tp));
}

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

Tensor Experts::take_rows(Run& run, const Saved& saved, int64_t columns) const {
  return run.scratch.take(run.dtype, {saved[here_.token].elements(), columns});
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
  run.ops.sort_choices(run.stream, saved[own_.first], saved[own_.row], saved[own_.token],
                       own(saved[chosen_]));
  if (!run.has_backward()) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor balance = run.scratch.take(logits.dtype, {logits.row_count()});
  const Tensor z = run.scratch.take(logits.dtype, {logits.row_count()});
  run.ops.router_losses(run.stream, balance, z, saved[counts_], logits, run.batch->seq_length(),
                        shape_.router);
  if (run.router_sums.rank() > 0) {
    run.ops.weighted_sum(run.stream, run.router_sums.rows(0, 1), balance, run.batch->loss_weight.flat());
    run.ops.weighted_sum(run.stream, run.router_sums.rows(1, 2), z, run.batch->loss_weight.flat());
  }
  run.scratch.release(mark);
}

void Experts::take_kept(Run& run, Tensor x, Saved& saved) const {
  const int64_t tokens = x.row_count();
  const int64_t choices = shape_.router.choices;
  const DType wide = accumulate_type(run.dtype);
  saved[x_] = x;
  saved[logits_] = run.keep.take(wide, {tokens * parts_, shape_.experts});
  saved[gates_] = run.keep.take(wide, {tokens * parts_, choices});
  saved[chosen_] = run.keep.take(DType::I32, {tokens * parts_, choices});
  saved[counts_] = run.keep.take(DType::I32, {run.batch->samples(), shape_.experts});
  saved[own_.first] = run.keep.take(DType::I32, {shape_.experts + 1});
  saved[own_.row] = run.keep.take(DType::I32, {tokens, choices});
  saved[own_.token] = run.keep.take(DType::I32, {tokens * choices});
  const Tensor logits = own(saved[logits_]);
  run.ops.gemm(run.stream, logits, x, false, run.weight(router_), true, 1, 0);
  run.show(name_ + ".router", "output", logits);
  if (parts_ > 1) run.mesh.comm({Axis::Tp}).all_gather(saved[logits_], logits, run.stream);
  route(run, saved);
  saved[gates_here_] = own(saved[gates_]);
  if (exchange_) take_arriving(run, tokens, saved);
  saved[inner_] = run.keep.take(run.dtype, {saved[here_.token].elements(), run.weight(up_).dim(1)});
}

void Experts::take_arriving(Run& run, int64_t tokens, Saved& saved) const {
  const DType wide = saved[gates_].dtype;
  const int64_t own_rows = saved[own_.token].elements();
  const Tensor counts = saved[arriving_] =
      run.keep.take(DType::I32, {exchange_->ranks(), exchange_->experts_here()});
  exchange_->exchange_counts(run, counts, saved[own_.first]);
  const int64_t rows = exchange_->rows_arriving(run, counts, tokens);
  saved[here_.first] = run.keep.take(DType::I32, {exchange_->experts_here() + 1});
  saved[here_.row] = run.keep.take(DType::I32, {rows, 1});
  saved[here_.token] = run.keep.take(DType::I32, {rows});
  saved[gates_here_] = run.keep.take(wide, {rows, 1});

  const Arena::Mark mark = run.scratch.mark();
  const Tensor expert = run.scratch.take(DType::I32, {rows, 1});
  const Tensor sorted_gates = run.scratch.take(wide, {own_rows, 1});
  exchange_->find_experts(run, expert, counts);
  run.ops.sort_choices(run.stream, saved[here_.first], saved[here_.row], saved[here_.token], expert);
  run.ops.fill(run.stream, sorted_gates, 1.0);
  run.ops.gate_rows(run.stream, sorted_gates, sorted_gates, own(saved[gates_]), saved[own_.row]);
  exchange_->send(run, saved[gates_here_], sorted_gates, counts, saved[own_.first]);
  run.scratch.release(mark);
}

Tensor Experts::dispatched(Run& run, Arena& arena, Tensor x, const Saved& saved) const {
  if (!exchange_) return x;
  const Tensor arrived = arena.take(run.dtype, {saved[here_.token].elements(), x.last_dim()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = run.scratch.take(run.dtype, {saved[own_.token].elements(), x.last_dim()});
  run.ops.embedding(run.stream, sorted, x, saved[own_.token], 0, false);
  exchange_->send(run, arrived, sorted, saved[arriving_], saved[own_.first]);
  run.scratch.release(mark);
  return arrived;
}

void Experts::combine(Run& run, Tensor y, Tensor rows, const Saved& saved, bool accumulate) const {
  if (!exchange_) return run.ops.sum_choices(run.stream, y, rows, saved[own_.row], accumulate);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = run.scratch.take(run.dtype, {saved[own_.token].elements(), y.last_dim()});
  const Tensor arrived = take_rows(run, saved, y.last_dim());
  run.ops.embedding(run.stream, arrived, rows, saved[here_.row], 0, false);
  exchange_->send_back(run, sorted, arrived, saved[arriving_], saved[own_.first]);
  run.ops.sum_choices(run.stream, y, sorted, saved[own_.row], accumulate);
  run.scratch.release(mark);
}

Tensor Experts::gates_back(Run& run, Tensor dgates, const Saved& saved) const {
  if (!exchange_) return dgates;
  const Shape shape{saved[own_.token].elements(), 1};
  const Tensor mine = run.scratch.take(dgates.dtype, shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = run.scratch.take(dgates.dtype, shape);
  exchange_->send_back(run, sorted, dgates, saved[arriving_], saved[own_.first]);
  run.ops.embedding(run.stream, mine, sorted, saved[own_.row], 0, false);
  run.scratch.release(mark);
  return mine.reshape(saved[own_.row].shape);
}

void Experts::mix(Run& run, Tensor y, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor rows = take_rows(run, saved, y.last_dim());
  const Tensor a = take_rows(run, saved, ffn_);
  const Arena::Mark arrived = run.scratch.mark();
  run.ops.embedding(run.stream, rows, dispatched(run, run.scratch, saved[x_], saved), saved[here_.token], 0,
                    false);
  run.scratch.release(arrived);
  run.ops.expert_product(run.stream, saved[inner_], rows, run.weight(up_), saved[here_.first], true);
  run.show(name_ + ".experts.up", "output", saved[inner_]);
  activate(run, a, saved);
  run.ops.gate_rows(run.stream, a, a, saved[gates_here_], saved[here_.row]);
  run.ops.expert_product(run.stream, rows, a, run.weight(down_), saved[here_.first], true);
  combine(run, y, rows, saved, false);
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
  const Tensor dx = run.flow.take(run.dtype, dy.shape);
  const Tensor dlogits = run.flow.take(run.dtype, saved[logits_].shape);
  saved[dlogits_] = own(dlogits);
  saved[dinner_] = run.flow.take(run.dtype, saved[inner_].shape);
  saved[dy_] = dispatched(run, run.flow, dy, saved);

  const Arena::Mark mark = run.scratch.mark();
  const Tensor rows = take_rows(run, saved, dy.last_dim());
  const Tensor a = take_rows(run, saved, ffn_);
  const Tensor da = take_rows(run, saved, ffn_);
  const Tensor dgates = run.scratch.take(saved[gates_here_].dtype, saved[gates_here_].shape);
  run.ops.embedding(run.stream, rows, saved[dy_], saved[here_.token], 0, false);
  run.ops.expert_product(run.stream, da, rows, run.weight(down_), saved[here_.first], false);
  activate(run, a, saved);
  run.ops.gate_rows_backward(run.stream, da, dgates, da, a, saved[gates_here_], saved[here_.row]);
  const auto slope = activation_ == ActivationKind::Swiglu    ? run.ops.swiglu_backward
                     : activation_ == ActivationKind::GeluErf ? run.ops.gelu_erf_backward
                                                              : run.ops.gelu_backward;
  slope(run.stream, saved[dinner_], da, saved[inner_]);
  const Tensor dgates_of_all = gathered(run, run.scratch, gates_back(run, dgates, saved));
  run.ops.route_backward(run.stream, dlogits, dgates_of_all, saved[gates_], saved[chosen_], saved[logits_],
                         saved[counts_], run.batch->loss_weight.flat(), run.loss_factor(), shape_.losses,
                         shape_.router);
  run.show(name_ + ".router", "gradient of the output", saved[dlogits_]);
  run.ops.gemm(run.stream, dx, saved[dlogits_], false, run.weight(router_), false, 1, 0);
  run.ops.expert_product(run.stream, rows, saved[dinner_], run.weight(up_), saved[here_.first], false);
  combine(run, dx, rows, saved, true);
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
  run.ops.embedding(run.stream, rows, dispatched(run, run.scratch, x, saved), saved[here_.token], 0, false);
  run.ops.expert_product_weight(run.stream, run.grad(up_), saved[dinner_], rows, saved[here_.first],
                                run.adds_to(up_));
  activate(run, a, saved);
  run.ops.gate_rows(run.stream, a, a, saved[gates_here_], saved[here_.row]);
  run.ops.embedding(run.stream, rows, saved[dy_], saved[here_.token], 0, false);
  run.ops.expert_product_weight(run.stream, run.grad(down_), rows, a, saved[here_.first], run.adds_to(down_));
  run.scratch.release(mark);
}

}  // namespace trifold
