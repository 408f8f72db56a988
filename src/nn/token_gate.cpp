#include "nn/token_gate.h"

namespace trifold {

namespace {

constexpr Router kOneExpert{1, RouterGate::Sigmoid, 1};

}  // namespace

TokenGate::TokenGate(BlockBuilder& builder, const std::string& name, int64_t width, Init init)
    : name_(name),
      weight_(builder.replicated(name + ".weight", {1, width}, init, true)),
      row_part_(builder.row_part()),
      x_(builder.slot()),
      y_(builder.slot()),
      logits_(builder.slot()),
      gates_(builder.slot()),
      chosen_(builder.slot()),
      row_(builder.slot()),
      dlogits_(builder.slot()) {}

void TokenGate::forward(Run& run, Tensor x, Tensor y, Saved& saved) const {
  const int64_t tokens = x.row_count();
  const DType wide = accumulate_type(run.dtype);
  saved[x_] = x;
  saved[y_] = run.keep->take(run.dtype, y.shape);
  saved[logits_] = run.keep->take(wide, {tokens, 1});
  saved[gates_] = run.keep->take(wide, {tokens, 1});
  saved[chosen_] = run.keep->take(DType::I32, {tokens, 1});
  saved[row_] = run.keep->take(DType::I32, {tokens, 1});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor first = run.scratch.take(DType::I32, {2});
  const Tensor token = run.scratch.take(DType::I32, {tokens});
  run.ops.copy(run.stream, saved[y_], y);
  run.ops.gemm(run.stream, saved[logits_], x, false, run.weight(weight_), true, 1, 0);
  run.ops.route(run.stream, saved[gates_], saved[chosen_], saved[logits_], {}, kOneExpert);
  run.ops.sort_choices(run.stream, first, saved[row_], token, saved[chosen_]);
  run.ops.gate_rows(run.stream, y, y, saved[gates_], saved[row_]);
  run.scratch.release(mark);
  run.show(name_, "output", y);
}

Tensor TokenGate::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const Tensor gated = run.flow->take(run.dtype, dy.shape);
  saved[dlogits_] = run.flow->take(run.dtype, saved[logits_].shape);
  const Arena::Mark mark = run.scratch.mark();
  const int64_t tokens = dy.row_count();
  const DType wide = saved[logits_].dtype;
  const Tensor dgates = run.scratch.take(wide, {tokens, 1});
  run.ops.gate_rows_backward(run.stream, gated, dgates, dy, saved[y_], saved[gates_], saved[row_]);
  // It has no losses, so counts and weights are multiplied by 0.
  const Tensor counts = run.scratch.take(DType::I32, {1, 1});
  const Tensor unused = run.scratch.take(wide, {2 * tokens});
  run.ops.router_losses(run.stream, unused.rows(0, tokens), unused.rows(tokens, 2 * tokens), counts,
                        saved[logits_], {}, tokens, kOneExpert);
  const Tensor weight = run.batch->loss_weight.flat(row_part_ * tokens, (row_part_ + 1) * tokens);
  run.ops.route_backward(run.stream, saved[dlogits_], dgates, saved[gates_], saved[chosen_], saved[logits_],
                         counts, weight, run.loss_factor(), {}, kOneExpert);
  run.scratch.release(mark);
  return gated;
}

void TokenGate::add_input_gradient(Run& run, Tensor dx, const Saved& saved) const {
  run.ops.gemm(run.stream, dx, saved[dlogits_], false, run.weight(weight_), false, 1, 1);
}

void TokenGate::backward_weight(Run& run, Saved& saved) const {
  if (!run.trains(weight_)) return;
  run.ops.gemm(run.stream, run.grad(weight_), saved[dlogits_], true, saved[x_], false, 1,
               run.adds_to(weight_) ? 1 : 0);
}

}  // namespace trifold
