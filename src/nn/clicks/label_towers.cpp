#include "nn/clicks/label_towers.h"

#include <cmath>

namespace trifold {

namespace {

std::vector<int64_t> chain(int64_t in, const std::vector<int64_t>& rest) {
  std::vector<int64_t> all{in};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

// `x` in `dtype`, if it has another type.
Tensor in_type(Run& run, Arena& arena, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor y = arena.take(dtype, x.shape);
  run.ops.convert(run.stream, y, x);
  return y;
}

ColumnCopy columns(int64_t to, int64_t from, int64_t width) {
  ColumnCopy copy;
  copy.to = to;
  copy.from = from;
  copy.width = width;
  return copy;
}

// p = softmax of the rows of z [B, E], computed as the gradient of a cross entropy: softmax minus one at the label.
// Labels are outside the columns (id 0 where ids begin at 1), so the gradient is the softmax alone.
void softmax(Run& run, const Tensor& p, const Tensor& z) {
  const int64_t rows = z.row_count();
  const Arena::Mark mark = run.scratch.mark();
  const Tensor most = run.scratch.take(z.dtype, {rows});
  const Tensor sum = run.scratch.take(z.dtype, {rows});
  const Tensor target = run.scratch.take(z.dtype, {rows});
  const Tensor ones = run.scratch.take(DType::F32, {rows});
  const Tensor zeros = run.scratch.take(DType::F32, {rows});
  run.ops.fill(run.stream, ones, 1);
  run.ops.fill(run.stream, zeros, 0);  // the same bits in f32 and in i32
  const Tensor labels{zeros.data, DType::I32, zeros.shape};
  const int64_t end = 1 + z.last_dim();
  run.ops.softmax_stats(run.stream, most, sum, target, z, labels, 1, end);
  run.ops.cross_entropy_backward(run.stream, p, z, most, sum, labels, ones, 1.0, 1, end);
  run.scratch.release(mark);
}

}  // namespace

LabelTowers::LabelTowers(BlockBuilder& builder, const LabelTowersShape& shape)
    : shape_(shape), x_(builder.slot()), experts_(builder.slot()) {
  check(!shape.labels.empty() && !shape.tower.empty() && shape.tower.back() == 1,
        "the last width of a label's tower must be 1");
  check(shape.experts == 0 || !shape.shared.empty(), "experts have no layer");
  const std::vector<int64_t> stack = chain(shape.in, shape.shared);
  if (shape.experts == 0 && !shape.shared.empty())
    stacks_.emplace_back(builder, "top", stack, false, false, shape.dropout, shape.dropout);
  for (int e = 0; e < shape.experts; ++e)
    stacks_.emplace_back(builder, fmt::format("expert.{}", e), stack, false, false, shape.dropout,
                         shape.dropout);
  const double deviation = std::sqrt(2.0 / static_cast<double>(shape.in + std::max(1, shape.experts)));
  for (const std::string& label : shape.labels) {
    const std::string gate = fmt::format("gate.{}", label);
    if (shape.experts > 0)
      gates_.push_back({gate,
                        builder.replicated(gate + ".weight", {shape.experts, shape.in},
                                           {Init::Kind::Normal, deviation}, true),
                        builder.slot(), builder.slot()});
    towers_.emplace_back(builder, fmt::format("tower.{}", label), chain(shape.width(), shape.tower), true,
                         false, shape.dropout);
  }
  for (int64_t i = 0; i < std::max(std::ssize(towers_), std::ssize(stacks_)); ++i) {
    to_column_.push_back(columns(i, 0, 1));
    from_column_.push_back(columns(0, i, 1));
  }
  for (int64_t e = 0; e < shape.experts; ++e) {
    const int64_t place = e * shape.width();
    to_expert_.push_back(columns(place, 0, shape.width()));
    from_expert_.push_back(columns(0, place, shape.width()));
    sum_experts_.push_back(from_expert_.back());
    sum_experts_.back().add = e > 0;
  }
}

// [E C, E]: 1 if the row is a column of the outputs of the column's expert, else 0.
Tensor LabelTowers::expert_columns(Run& run, DType dtype) const {
  const int64_t width = shape_.width();
  const Tensor all = run.scratch.take(dtype, {side_by_side(), shape_.experts});
  const Tensor ones = run.scratch.take(dtype, {width, 1});
  run.ops.fill(run.stream, all, 0);
  run.ops.fill(run.stream, ones, 1);
  for (int64_t e = 0; e < shape_.experts; ++e)
    run.ops.copy_columns(run.stream, all.rows(e * width, (e + 1) * width), ones,
                         {&to_column_[static_cast<size_t>(e)], 1});
  return all;
}

// [B, E C]: the gate of every column of the experts' outputs.
Tensor LabelTowers::spread(Run& run, const Tensor& gates) const {
  const Tensor all = run.scratch.take(gates.dtype, {gates.row_count(), side_by_side()});
  run.ops.gemm(run.stream, all, gates, false, expert_columns(run, gates.dtype), true, 1, 0);
  return all;
}

// The experts' outputs times their gates, summed: [B, C].
Tensor LabelTowers::mixed(Run& run, const Gate& gate, Tensor x, Saved& saved) const {
  const Tensor& experts = saved[experts_];
  const DType wide = experts.dtype;
  const int64_t rows = x.row_count();
  const Tensor p = saved[gate.p] = run.keep->take(wide, {rows, shape_.experts});
  const Tensor sum = run.keep->take(wide, {rows, shape_.width()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor logits = run.scratch.take(wide, p.shape);
  run.ops.gemm(run.stream, logits, x, false, run.weight(gate.weight), true, 1, 0);
  softmax(run, p, logits);
  const Tensor weighted = run.scratch.take(wide, experts.shape);
  const Tensor zeros = run.scratch.take(wide, experts.shape);
  run.ops.fill(run.stream, zeros, 0);
  run.ops.cross(run.stream, weighted, experts, spread(run, p), zeros);
  run.ops.copy_columns(run.stream, sum, weighted, sum_experts_);
  run.scratch.release(mark);
  run.show(gate.name, "output", p);
  return in_type(run, *run.keep, sum, run.dtype);
}

Tensor LabelTowers::forward(Run& run, Tensor x, Saved& saved) const {
  const DType wide = accumulate_type(run.dtype);
  const int64_t rows = x.row_count();
  saved[x_] = x;
  const Tensor logits = run.keep->take(wide, {rows, std::ssize(towers_)});
  Tensor h = x;
  if (mixes()) {
    const Tensor experts = saved[experts_] = run.keep->take(wide, {rows, side_by_side()});
    for (size_t e = 0; e < stacks_.size(); ++e) {
      const Tensor y = in_type(run, *run.keep, stacks_[e].forward(run, x, saved), wide);
      run.ops.copy_columns(run.stream, experts, y, {&to_expert_[e], 1});
    }
  } else if (!stacks_.empty()) {
    h = stacks_[0].forward(run, x, saved);
  }
  for (size_t l = 0; l < towers_.size(); ++l) {
    if (mixes()) h = mixed(run, gates_[l], x, saved);
    const Tensor z = in_type(run, *run.keep, towers_[l].forward(run, h, saved), wide);
    run.ops.copy_columns(run.stream, logits, z, {&to_column_[l], 1});
  }
  return logits;
}

// Adds to the gradients of the experts' outputs, and saves the gradients of the gate's logits:
// dlogits = p * (dp - sum over e of p_e dp_e).
void LabelTowers::mixed_backward(Run& run, const Gate& gate, const Tensor& dexperts, const Tensor& dmixed,
                                 Saved& saved) const {
  const Tensor& experts = saved[experts_];
  const Tensor& p = saved[gate.p];
  const DType wide = experts.dtype;
  const Tensor dlogits = run.flow->take(wide, p.shape);
  saved[gate.dlogits] = wide == run.dtype ? dlogits : run.flow->take(run.dtype, p.shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor dsum = run.scratch.take(wide, experts.shape);
  run.ops.copy_columns(run.stream, dsum, dmixed, to_expert_);
  const Tensor products = run.scratch.take(wide, experts.shape);
  run.ops.cross_backward(run.stream, products, dexperts, dsum, experts, spread(run, p));
  const Tensor dp = run.scratch.take(wide, p.shape);
  run.ops.gemm(run.stream, dp, products, false, expert_columns(run, wide), false, 1, 0);
  const Tensor zeros = run.scratch.take(wide, p.shape);
  const Tensor ones = run.scratch.take(wide, {shape_.experts, shape_.experts});
  run.ops.fill(run.stream, zeros, 0);
  run.ops.fill(run.stream, ones, 1);
  run.ops.cross(run.stream, dlogits, p, dp, zeros);
  run.ops.gemm(run.stream, dp, dlogits, false, ones, false, -1, 1);
  run.ops.cross(run.stream, dlogits, p, dp, zeros);
  run.scratch.release(mark);
  if (wide != run.dtype) run.ops.convert(run.stream, saved[gate.dlogits], dlogits);
}

Tensor LabelTowers::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const DType wide = dy.dtype;
  const int64_t rows = dy.row_count();
  // The sum of the towers' input gradients: with experts the gradient of x, else of the shared layers' output.
  const Tensor sum = run.flow->take(run.dtype, {rows, mixes() ? shape_.in : shape_.width()});
  const Tensor dexperts = mixes() ? run.flow->take(wide, saved[experts_].shape) : Tensor{};
  run.ops.fill(run.stream, sum, 0);
  if (mixes()) run.ops.fill(run.stream, dexperts, 0);
  for (size_t l = towers_.size(); l-- > 0;) {
    const Tensor dz = run.flow->take(wide, {rows, 1});
    run.ops.copy_columns(run.stream, dz, dy, {&from_column_[l], 1});
    const Tensor back = towers_[l].backward_input(run, in_type(run, *run.flow, dz, run.dtype), saved);
    if (!mixes()) {
      run.ops.add(run.stream, sum, sum, back);
      continue;
    }
    mixed_backward(run, gates_[l], dexperts, in_type(run, *run.flow, back, wide), saved);
    run.ops.gemm(run.stream, sum, saved[gates_[l].dlogits], false, run.weight(gates_[l].weight), false, 1, 1);
  }
  if (!mixes()) return stacks_.empty() ? sum : stacks_[0].backward_input(run, sum, saved);
  for (size_t e = stacks_.size(); e-- > 0;) {
    const Tensor of_expert = run.flow->take(wide, {rows, shape_.width()});
    run.ops.copy_columns(run.stream, of_expert, dexperts, {&from_expert_[e], 1});
    const Tensor back = stacks_[e].backward_input(run, in_type(run, *run.flow, of_expert, run.dtype), saved);
    run.ops.add(run.stream, sum, sum, back);
  }
  return sum;
}

void LabelTowers::backward_weight(Run& run, Saved& saved) const {
  for (size_t l = towers_.size(); l-- > 0;) {
    towers_[l].backward_weight(run, saved);
    if (mixes())
      run.ops.gemm(run.stream, run.grad(gates_[l].weight), saved[gates_[l].dlogits], true, saved[x_], false,
                   1, run.adds_to(gates_[l].weight) ? 1 : 0);
  }
  for (size_t e = stacks_.size(); e-- > 0;) stacks_[e].backward_weight(run, saved);
}

}  // namespace trifold
