#include "tensor_parallel/tiled_mlp.h"

#include <algorithm>

namespace trifold {

TiledMlp::TiledMlp(BlockBuilder& builder, const std::string& name, int64_t width, int64_t ffn,
                   const ActivationForm& activation, bool bias, Init up, Init down, int64_t tiles)
    : up_name_(name + ".up"),
      down_name_(name + ".down"),
      region_(builder),
      tiles_(tiles),
      up_(builder, up_name_, activation.gated() ? 2 : 1, ffn, width, up, bias),
      activation_(builder, name + ".activation", activation),
      down_(builder, down_name_, width, ffn, down, bias),
      x_(builder.slot()),
      dy_(builder.slot()) {}

void TiledMlp::for_each_tile(Run& run, int64_t rows,
                             FunctionRef<void(int64_t begin, int64_t end)> body) const {
  const int64_t tile = std::max<int64_t>(1, (rows + tiles_ - 1) / tiles_);
  for (int64_t begin = 0; begin < rows; begin += tile) {
    const Arena::Mark mark = run.scratch.mark();
    body(begin, std::min(begin + tile, rows));
    run.scratch.release(mark);
  }
}

Tensor TiledMlp::inner(Run& run, Tensor x, Saved& saved) const {
  const LinearParameters up = up_.parameters();
  const Tensor w = run.weight(up.weight);
  const Tensor z = run.scratch.take(run.dtype, {x.row_count(), w.row_count()});
  if (activation_.kind() == ActivationKind::Gelu && up.bias) {
    const Tensor a = run.scratch.take(run.dtype, z.shape);
    run.ops.affine_gelu(run.stream, a, z, x, w, run.weight(*up.bias).flat());
    run.show(up_name_, "output", z);
    activation_.take_over(run, z, a, saved);
    return a;
  }
  run.ops.affine(run.stream, z, x, w, up.bias ? run.weight(*up.bias).flat() : Tensor{});
  run.show(up_name_, "output", z);
  Run brief = run.keeping_in(run.scratch);
  return activation_.forward(brief, z, saved);
}

Tensor TiledMlp::inner_gradient(Run& run, Tensor dy, Saved& saved) const {
  const Tensor w = run.weight(down_.parameters().weight);
  const Tensor da = run.scratch.take(run.dtype, {dy.row_count(), w.last_dim()});
  if (activation_.kind() == ActivationKind::Gelu) {
    run.ops.affine_backward_gelu(run.stream, da, dy, w, activation_.input(saved));
    activation_.show_gradient(run, da);
    return da;
  }
  run.ops.affine_backward_input(run.stream, da, dy, w, 0.0);
  Run brief = run.flowing_in(run.scratch);
  return activation_.backward_input(brief, da, saved);
}

void TiledMlp::add_weight_gradients(Run& run, Tensor x, Tensor a, Tensor dz, Tensor dy) const {
  const LinearParameters up = up_.parameters();
  const LinearParameters down = down_.parameters();
  const bool biased = down.bias && !sums_bias_apart(run);
  run.ops.affine_backward_weight(run.stream, run.grad(down.weight), biased ? run.grad(*down.bias) : Tensor{},
                                 dy, a,
                                 biased ? run.adds_to(down.weight, down.bias) : run.adds_to(down.weight));
  run.ops.affine_backward_weight(run.stream, run.grad(up.weight),
                                 up.bias ? run.grad(*up.bias).flat() : Tensor{}, dz, x,
                                 run.adds_to(up.weight, up.bias));
}

void TiledMlp::add_partial(Run& run, const Region::Sum& y, Tensor all_x, Saved& saved) const {
  const LinearParameters down = down_.parameters();
  // The bias is added once, by the first rank of the axis.
  const bool biased = down.bias && run.mesh.coord(Axis::Tp) == 0;
  for_each_tile(run, all_x.row_count(), [&](int64_t begin, int64_t end) {
    const Tensor a = inner(run, all_x.rows(begin, end), saved);
    run.ops.affine(run.stream, y.partial.rows(begin, end), a, run.weight(down.weight),
                   biased ? run.weight(*down.bias) : Tensor{});
  });
  run.show(down_name_, "output", y.partial);
  region_.add_up(run, y, run.stream);
  run.show(down_name_, "summed output", y.result);
}

Tensor TiledMlp::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Region::Sum y = region_.take_sum(run, *run.keep, region_.rows_inside(x.row_count()), x.last_dim());
  add_partial(run, y, region_.gather_rows(run, x, run.scratch, run.stream), saved);
  run.scratch.release(y.mark);
  return y.result;
}

// A single rank adds the residual as it writes the product.
Tensor TiledMlp::forward_added(Run& run, const ResidualAdd& add, Tensor residual, Tensor x,
                               Saved& saved) const {
  saved[x_] = x;
  if (run.repeats && !add.keeps_input()) return {};
  const Tensor sum = run.output().take(run.dtype, residual.shape);
  if (!region_.alone() || !add.only_adds(run)) {
    const Arena::Mark mark = run.scratch.mark();
    Run brief = run.keeping_in(run.scratch);
    add.forward_to(run, sum, residual, forward(brief, x, saved), saved);
    run.scratch.release(mark);
    return sum;
  }
  const LinearParameters down = down_.parameters();
  for_each_tile(run, x.row_count(), [&](int64_t begin, int64_t end) {
    const Tensor a = inner(run, x.rows(begin, end), saved);
    run.ops.affine_add(run.stream, sum.rows(begin, end), residual.rows(begin, end), a,
                       run.weight(down.weight), down.bias ? run.weight(*down.bias) : Tensor{});
  });
  add.show_sum(run, sum);
  return sum;
}

Tensor TiledMlp::compute_backward(Run& run, Tensor dy, Saved& saved, Parts parts) const {
  const Tensor x = saved[x_];
  const int64_t rows = region_.rows_inside(x.row_count());
  Region::Sum dx;
  if (parts.input)
    dx = region_.take_sum(run, *run.flow, rows, x.last_dim());
  else
    dx.mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  const Tensor all_dy = region_.gather_rows(run, dy, run.scratch, run.stream);
  for_each_tile(run, rows, [&](int64_t begin, int64_t end) {
    const Tensor x_here = all_x.rows(begin, end);
    const Tensor dy_here = all_dy.rows(begin, end);
    const Tensor a = inner(run, x_here, saved);
    const Tensor dz = inner_gradient(run, dy_here, saved);
    if (parts.weights) add_weight_gradients(run, x_here, a, dz, dy_here);
    if (parts.input)
      run.ops.affine_backward_input(run.stream, dx.partial.rows(begin, end), dz,
                                    run.weight(up_.parameters().weight), 0.0);
  });
  if (parts.weights && sums_bias_apart(run)) {
    const ParamId bias = *down_.parameters().bias;
    run.ops.column_sum(run.stream, run.grad(bias), dy, run.adds_to(bias));
  }
  if (parts.input) {
    run.show(up_name_, "input gradient", dx.partial);
    region_.add_up(run, dx, run.stream);
    run.show(up_name_, "summed input gradient", dx.result);
  }
  run.scratch.release(dx.mark);
  return dx.result;
}

Tensor TiledMlp::backward_input(Run& run, Tensor dy, Saved& saved) const {
  saved[dy_] = dy;
  return compute_backward(run, dy, saved, {true, false});
}

void TiledMlp::backward_weight(Run& run, Saved& saved) const {
  compute_backward(run, saved[dy_], saved, {false, true});
}

Tensor TiledMlp::backward(Run& run, Tensor dy, Saved& saved) const {
  return compute_backward(run, dy, saved, {true, true});
}

}  // namespace trifold
