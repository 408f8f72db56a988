#include "optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace trifold {

int64_t newton_schulz_elements(int64_t rows, int64_t columns) {
  const int64_t side = std::min(rows, columns);
  return 2 * rows * columns + 2 * side * side;
}

double newton_schulz_flops(int64_t rows, int64_t columns, int64_t steps) {
  const auto side = static_cast<double>(std::min(rows, columns));
  const auto other = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * (4 * side * side * other + 2 * side * side * side);
}

namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kLeastNorm = 1e-7;

double norm_of(Tensor x, Tensor partials, const OpTable& ops, Stream& stream) {
  ops.chunk_squares(stream, partials, x.flat());
  stream.synchronize();
  double squares = 0;
  for (int64_t i = 0; i < partials.elements(); ++i) squares += partials.as<double>()[i];
  return std::sqrt(squares);
}

class MuonUpdate final : public UpdateRule {
 public:
  MuonUpdate(const OptimizerConfig& config, std::unique_ptr<UpdateRule> rest)
      : config_(config), rest_(std::move(rest)) {
    names_.emplace_back("muon_momentum");
    names_.insert(names_.end(), rest_->state_names().begin(), rest_->state_names().end());
  }

  std::span<const std::string_view> state_names() const override { return names_; }
  bool has_state(size_t index, bool matrix) const override { return (index == 0) == matrix; }
  bool takes_matrices() const override { return true; }
  int64_t newton_schulz_steps() const override { return config_.muon_num_ns_steps; }

  double direction_scale(int64_t rows, int64_t columns) const override {
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    double square = 0;
    switch (config_.muon_scale_mode) {
      case MuonScaleMode::Spectral:
        square = std::max(r, c);
        break;
      case MuonScaleMode::UnitRmsNorm:
        square = r / c;
        break;
      case MuonScaleMode::ShapeScaling:
        square = std::max(1.0, r / c);
        break;
    }
    return config_.muon_extra_scale_factor * std::sqrt(square);
  }

  void direct(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    check(slice.matrix && slice.state.size() == 1, "a direction needs a part of a matrix with its momentum");
    const double momentum = config_.muon_momentum;
    const Tensor m = slice.state[0], g = slice.grad;
    ops.scale(stream, g, (1 - momentum) * values.grad_scale);
    ops.scale(stream, m, momentum);
    ops.add(stream, m, m, g);
    if (config_.muon_no_nesterov) return ops.copy(stream, g, m);
    Map add;
    add.op = MapOp::Add;
    add.a = momentum;
    add.box = {1, {g.elements()}};
    add.from = {contiguous_view(add.box), contiguous_view(add.box)};
    const std::array<Tensor, 2> terms{g, m};
    ops.map(stream, g, terms, add);
  }

  void update(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    if (!slice.matrix) return rest_->update(slice, values, ops, stream);
    ops.sgd(stream, slice.master, slice.weight, {}, slice.grad,
            rule(slice.weight_decay, values, slice.numbers));
  }
  RuleNumbers numbers(double weight_decay, const StepValues& values) const override {
    return rest_->numbers(weight_decay, values);
  }
  RuleNumbers matrix_numbers(double weight_decay, const StepValues& values) const override {
    return numbers_of(rule(weight_decay, values));
  }

 private:
  // Without momentum sgd subtracts lr (direction + decay w).
  static Sgd rule(double weight_decay, const StepValues& values, Tensor numbers = {}) {
    return {values.lr, 0, weight_decay, 1, numbers};
  }

  OptimizerConfig config_;
  std::unique_ptr<UpdateRule> rest_;
  std::vector<std::string_view> names_;
};

}  // namespace

Tensor orthogonalise(Tensor work, int64_t short_side, int64_t long_side, int64_t steps, double scale,
                     Tensor partials, const OpTable& ops, Stream& stream) {
  const int64_t whole = short_side * long_side, square = short_side * short_side;
  const Tensor all = work.flat();
  Tensor x = all.rows(0, whole).reshape({short_side, long_side});
  Tensor next = all.rows(whole, 2 * whole).reshape({short_side, long_side});
  const Tensor a = all.rows(2 * whole, 2 * whole + square).reshape({short_side, short_side});
  const Tensor b = all.rows(2 * whole + square, 2 * (whole + square)).reshape({short_side, short_side});
  ops.scale(stream, x, 1 / std::max(norm_of(x, partials, ops, stream), kLeastNorm));
  for (int64_t step = 0; step < steps; ++step) {
    ops.gemm(stream, a, x, false, x, true, 1, 0);
    ops.copy(stream, b, a);
    ops.gemm(stream, b, a, false, a, false, kC, kB);
    ops.copy(stream, next, x);
    ops.gemm(stream, next, b, false, x, false, 1, kA);
    std::swap(x, next);
  }
  ops.scale(stream, x, scale);
  return x;
}

std::unique_ptr<UpdateRule> make_muon(const OptimizerConfig& config, std::unique_ptr<UpdateRule> rest) {
  return std::make_unique<MuonUpdate>(config, std::move(rest));
}

}  // namespace trifold
