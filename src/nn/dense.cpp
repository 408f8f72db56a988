#include "nn/dense.h"

#include <cmath>

namespace trifold {

namespace {

// Normal, as in the reference implementation, with the variance that preserves magnitudes in both passes (Glorot &
// Bengio, 2010).
Init weight_init(int64_t in, int64_t out) {
  return {Init::Kind::Normal, std::sqrt(2.0 / static_cast<double>(in + out))};
}
Init bias_init(int64_t out) { return {Init::Kind::Normal, std::sqrt(1.0 / static_cast<double>(out))}; }

}  // namespace

DenseLayer::DenseLayer(BlockBuilder& builder, const std::string& name, int64_t in, int64_t out, Form form)
    : name_(name),
      in_(in),
      out_(out),
      form_(form),
      key_(philox_key(builder.seed(), name + ".dropout")),
      weight_(builder.replicated(name + ".weight", {out, in}, weight_init(in, out), true)),
      bias_(form.norm ? ParamId{} : builder.replicated(name + ".bias", {out}, bias_init(out), false)),
      x_(builder.slot()),
      y_(builder.slot()),
      dz_(builder.slot()) {
  check(form.dropout == 0 || form.relu, "{}: only hidden layers, which have a ReLU, can have dropout", name);
  check(!form.norm || form.relu, "{}: only hidden layers, which have a ReLU, can be normalised", name);
  if (form.norm) norm_.emplace(builder, name + ".norm", out, *form.norm);
}

Tensor DenseLayer::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  saved[y_] = norm_ ? normalised(run, x, saved) : run.keep->take(run.dtype, {x.row_count(), out_});
  if (!norm_) run.ops.linear(run.stream, saved[y_], x, run.weight(weight_), run.weight(bias_), form_.relu);
  if (drops(run)) drop_activation(run, saved[y_], saved[y_], form_.dropout, key_, 0);
  run.show(name_, "output", saved[y_]);
  return saved[y_];
}

// The maximum equals the backward of a ReLU applied to y as its own gradient.
Tensor DenseLayer::normalised(Run& run, const Tensor& x, Saved& saved) const {
  const Tensor z = run.keep->take(run.dtype, {x.row_count(), out_});
  run.ops.gemm(run.stream, z, x, false, run.weight(weight_), true, 1, 0);
  const Tensor y = norm_->forward(run, z, saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor not_used = run.scratch.take(accumulate_type(run.dtype), {out_});
  run.ops.relu_backward(run.stream, y, not_used, y, y, false);
  run.scratch.release(mark);
  return y;
}

// The saved y is 0 where outputs were dropped or clipped by the ReLU; only the scale of the other outputs is missing.
Tensor DenseLayer::backward_input(Run& run, Tensor dy, Saved& saved) const {
  if (drops(run)) drop_activation(run, dy, dy, form_.dropout, key_, 0);
  if (norm_) {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor not_used = run.scratch.take(accumulate_type(run.dtype), {out_});
    run.ops.relu_backward(run.stream, dy, not_used, dy, saved[y_], false);
    run.scratch.release(mark);
    dy = norm_->backward_input(run, dy, saved);
  } else if (form_.relu)
    run.ops.relu_backward(run.stream, dy, run.grad(bias_), dy, saved[y_], run.adds_to(bias_));
  else
    run.ops.column_sum(run.stream, run.grad(bias_), dy, run.adds_to(bias_));
  saved[dz_] = dy;
  if (form_.first) return {};
  const Tensor dx = run.flow->take(run.dtype, {dy.row_count(), in_});
  run.ops.gemm(run.stream, dx, dy, false, run.weight(weight_), false, 1, 0);
  run.show(name_, "input gradient", dx);
  return dx;
}

void DenseLayer::backward_weight(Run& run, Saved& saved) const {
  run.ops.gemm(run.stream, run.grad(weight_), saved[dz_], true, saved[x_], false, 1,
               run.adds_to(weight_) ? 1 : 0);
}

Mlp::Mlp(BlockBuilder& builder, const std::string& name, std::span<const int64_t> widths, bool linear_end,
         bool first, double dropout, double end_dropout, std::optional<int64_t> norm) {
  check(widths.size() >= 2, "{} has no layer", name);
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool is_last = i + 2 == widths.size();
    layers_.emplace_back(builder, fmt::format("{}.{}", name, i), widths[i], widths[i + 1],
                         DenseLayer::Form{.relu = !linear_end || !is_last,
                                          .first = first && i == 0,
                                          .dropout = is_last ? end_dropout : dropout,
                                          .norm = is_last ? std::nullopt : norm});
    if (norm) *norm += widths[i + 1];
  }
}

Tensor Mlp::forward(Run& run, Tensor x, Saved& saved) const {
  for (const DenseLayer& layer : layers_) x = layer.forward(run, x, saved);
  return x;
}

Tensor Mlp::backward_input(Run& run, Tensor dy, Saved& saved) const {
  for (size_t i = layers_.size(); i-- > 0;) dy = layers_[i].backward_input(run, dy, saved);
  return dy;
}

// In order, because the gradients that backward_input wrote last are still in caches.
void Mlp::backward_weight(Run& run, Saved& saved) const {
  for (const DenseLayer& layer : layers_) layer.backward_weight(run, saved);
}

CrossNetwork::CrossNetwork(BlockBuilder& builder, const std::string& name, int64_t width, int64_t rank,
                           int layers)
    : rank_(rank) {
  for (int l = 0; l < layers; ++l) {
    const std::string part = fmt::format("{}.{}", name, l);
    const Init init = weight_init(width, rank);
    parts_.push_back({part, builder.replicated(part + ".v", {rank, width}, init, true),
                      builder.replicated(part + ".w", {width, rank}, init, true),
                      builder.replicated(part + ".bias", {width}, {Init::Kind::Zeros}, false), builder.slot(),
                      builder.slot(), builder.slot(), builder.slot(), builder.slot()});
  }
}

Tensor CrossNetwork::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor start = x;
  for (const Part& part : parts_) {
    saved[part.x] = x;
    saved[part.low] = run.keep->take(run.dtype, {x.row_count(), rank_});
    saved[part.u] = run.keep->take(run.dtype, x.shape);
    run.ops.gemm(run.stream, saved[part.low], x, false, run.weight(part.down), true, 1, 0);
    run.ops.linear(run.stream, saved[part.u], saved[part.low], run.weight(part.up), run.weight(part.bias),
                   false);
    const Tensor y = run.keep->take(run.dtype, x.shape);
    run.ops.cross(run.stream, y, start, saved[part.u], x);
    run.show(part.name, "output", y);
    x = y;
  }
  return x;
}

// dy is the gradient of the current layer's output throughout: each layer adds the gradient through its product. The
// direct gradient of x_0 is accumulated separately.
Tensor CrossNetwork::backward_input(Run& run, Tensor dy, Saved& saved) const {
  if (parts_.empty()) return dy;
  const Tensor start = saved[parts_[0].x];
  const Tensor from_start = run.flow->take(run.dtype, dy.shape);
  run.ops.fill(run.stream, from_start, 0);
  for (size_t l = parts_.size(); l-- > 0;) {
    const Part& part = parts_[l];
    saved[part.du] = run.flow->take(run.dtype, dy.shape);
    saved[part.dlow] = run.flow->take(run.dtype, {dy.row_count(), rank_});
    run.ops.cross_backward(run.stream, saved[part.du], from_start, dy, start, saved[part.u]);
    run.ops.column_sum(run.stream, run.grad(part.bias), saved[part.du], run.adds_to(part.bias));
    run.ops.gemm(run.stream, saved[part.dlow], saved[part.du], false, run.weight(part.up), false, 1, 0);
    run.ops.gemm(run.stream, dy, saved[part.dlow], false, run.weight(part.down), false, 1, 1);
    run.show(part.name, "input gradient", dy);
  }
  run.ops.add(run.stream, dy, dy, from_start);
  return dy;
}

void CrossNetwork::backward_weight(Run& run, Saved& saved) const {
  for (const Part& part : parts_) {
    const double beta = run.adds_to(part.up, part.down) ? 1 : 0;
    run.ops.gemm(run.stream, run.grad(part.up), saved[part.du], true, saved[part.low], false, 1, beta);
    run.ops.gemm(run.stream, run.grad(part.down), saved[part.dlow], true, saved[part.x], false, 1, beta);
  }
}

}  // namespace trifold
