#include "nn/expert_biases.h"

namespace trifold {

namespace {

// [E, ...] as the matrices [E, N, 1] of a grouped product.
Tensor as_columns(Tensor bias) { return bias.reshape({bias.dim(0), bias.elements() / bias.dim(0), 1}); }

// [rows, 1], all 1, in scratch.
Tensor ones(Run& run, int64_t rows) {
  const Tensor column = run.scratch.take(run.dtype, {rows, 1});
  run.ops.fill(run.stream, column, 1.0);
  return column;
}

// [R, 1], the gate of each row, in scratch.
Tensor gate_column(Run& run, const ExpertBiases::Rows& rows) {
  const Tensor column = ones(run, rows.row.elements());
  run.ops.gate_rows(run.stream, column, column, rows.gates, rows.row);
  return column;
}

// y [R, N] += factor [R, 1] times the bias of each row's expert.
void add_biases(Run& run, Tensor y, Tensor factor, Tensor bias, Tensor first) {
  const Tensor biases = run.scratch.take(run.dtype, y.shape);
  run.ops.expert_product(run.stream, biases, factor, as_columns(bias), first, true);
  run.ops.add(run.stream, y, y, biases);
}

}  // namespace

ExpertBiases::ExpertBiases(BlockBuilder& builder, const std::string& name, int64_t experts, int64_t width,
                           int64_t ffn, bool gated)
    : up_(gated ? builder.of_experts(name + ".up.bias", {experts, 2, ffn}, 2, {Init::Kind::Zeros}, false)
                : builder.of_experts(name + ".up.bias", {experts, ffn}, 1, {Init::Kind::Zeros}, false)),
      down_(builder.of_experts(name + ".down.bias", {experts, width}, {}, {Init::Kind::Zeros}, false)),
      adds_down_(builder.mesh().coord(Axis::Etp) == 0) {}

void ExpertBiases::add_up(Run& run, Tensor inner, Tensor first) const {
  const Arena::Mark mark = run.scratch.mark();
  add_biases(run, inner, ones(run, inner.row_count()), run.weight(up_), first);
  run.scratch.release(mark);
}

void ExpertBiases::add_down(Run& run, Tensor y, const Rows& rows) const {
  if (!adds_down_) return;
  const Arena::Mark mark = run.scratch.mark();
  add_biases(run, y, gate_column(run, rows), run.weight(down_), rows.first);
  run.scratch.release(mark);
}

void ExpertBiases::add_gate_gradients(Run& run, Tensor dgates, Tensor dy, const Rows& rows) const {
  if (!adds_down_) return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor along = run.scratch.take(run.dtype, {dy.row_count(), 1});
  const Tensor of_choices = run.scratch.take(dgates.dtype, dgates.shape);
  run.ops.fill(run.stream, along, 0.0);  // the product leaves rows of dropped choices as they are
  run.ops.expert_product(run.stream, along, dy, as_columns(run.weight(down_)), rows.first, false);
  const Tensor one = ones(run, dy.row_count());
  run.ops.gate_rows_backward(run.stream, along, of_choices, along, one, rows.gates, rows.row);
  run.ops.add(run.stream, dgates, dgates, of_choices);
  run.scratch.release(mark);
}

void ExpertBiases::add_up_gradient(Run& run, Tensor dinner, Tensor first) const {
  const Arena::Mark mark = run.scratch.mark();
  run.ops.expert_product_weight(run.stream, as_columns(run.grad(up_)), dinner, ones(run, dinner.row_count()),
                                first, run.adds_to(up_));
  run.scratch.release(mark);
}

void ExpertBiases::add_down_gradient(Run& run, Tensor dy, const Rows& rows) const {
  const Arena::Mark mark = run.scratch.mark();
  run.ops.expert_product_weight(run.stream, as_columns(run.grad(down_)), dy, gate_column(run, rows),
                                rows.first, run.adds_to(down_));
  run.scratch.release(mark);
}

}  // namespace trifold
