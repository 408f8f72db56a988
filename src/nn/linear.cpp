#include "nn/linear.h"

namespace trifold {

WholeLinear::WholeLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init,
                         bool bias)
    : name_(name),
      weight_(builder.replicated(name + ".weight", {out, in}, init, true)),
      x_(builder.slot()),
      dy_(builder.slot()) {
  if (bias) bias_ = builder.replicated(name + ".bias", {out}, {Init::Kind::Zeros}, false);
}

Tensor WholeLinear::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Tensor w = run.weight(weight_);
  const Tensor y = run.keep->take(run.dtype, {x.row_count(), w.row_count()});
  if (bias_) run.ops.fill_rows(run.stream, y, run.weight(*bias_));
  run.ops.gemm(run.stream, y, x, false, w, true, 1.0, bias_ ? 1.0 : 0.0);
  run.show(name_, "output", y);
  return y;
}

Tensor WholeLinear::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  const Tensor w = run.weight(weight_);
  const Tensor dx = run.flow->take(run.dtype, {dy.row_count(), w.last_dim()});
  run.ops.gemm(run.stream, dx, dy, false, w, false, 1.0, 0.0);
  run.show(name_, "input gradient", dx);
  return dx;
}

void WholeLinear::backward_weight(Run& run, Saved& saved) const {
  if (!run.trains(weight_)) return;
  const bool adds = run.adds_to(weight_, bias_);
  run.ops.gemm(run.stream, run.grad(weight_), saved[dy_], true, saved[x_], false, 1.0, adds ? 1.0 : 0.0);
  if (bias_) run.ops.column_sum(run.stream, run.grad(*bias_), saved[dy_], adds);
}

}  // namespace trifold
