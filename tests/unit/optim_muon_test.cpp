#include "optim/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/compare.h"
#include "support/golden.h"
#include "unit/ops_support.h"

namespace trifold {
namespace {

using ops_test::Host;
using ops_test::Machine;
using ops_test::random_values;
using ops_test::Values;

OptimizerConfig muon(const std::string& scale = "spectral", bool nesterov = true) {
  OptimizerConfig config;
  config.optimizer = OptimizerKind::Muon;
  config.muon_scale_mode = value_named<MuonScaleMode>(scale).value();
  config.muon_no_nesterov = !nesterov;
  return config;
}

// x orthogonalised, in place.
void make_orthogonal(Tensor x, int64_t steps, double scale, const OpTable& ops, Stream& stream) {
  const int64_t rows = x.shape[0], columns = x.shape[1];
  const Host work(x.dtype, {newton_schulz_elements(rows, columns)});
  const Host partials(DType::F64, {(x.elements() + kNormChunk - 1) / kNormChunk});
  const bool turned = rows > columns;
  const Box box{2, {rows, columns}};
  const StridedView flat = contiguous_view(box);
  const StridedView whole = turned ? StridedView{0, {1, rows}} : flat;
  ops.strided_copy(stream, Tensor(work), whole, x.flat(), flat, box);
  const Tensor y = orthogonalise(Tensor(work), std::min(rows, columns), std::max(rows, columns), steps, scale,
                                 Tensor(partials), ops, stream);
  ops.strided_copy(stream, x.flat(), flat, y.flat(), whole, box);
}

// The weights after all gradients, with slices that end at `cuts`.
Values trained(const OptimizerConfig& config, DType dtype, const test::GoldenMatrix& matrix,
               const std::vector<int64_t>& cuts) {
  Machine machine(2);
  const std::unique_ptr<UpdateRule> rule = make_update_rule(config);
  const Shape shape(std::span<const int64_t>(matrix.shape));
  const Host weight(dtype, shape, matrix.weight), momentum(dtype, shape);
  int64_t step = 0;
  for (const Values& gradient : matrix.gradients) {
    const Host grad(dtype, shape, gradient);
    const StepValues values{.lr = 0.05, .step = ++step};
    const auto each_slice = [&](auto&& call) {
      int64_t begin = 0;
      for (const int64_t end : cuts) {
        Slice slice{.master = Tensor(weight).flat().rows(begin, end),
                    .weight = {},
                    .grad = Tensor(grad).flat().rows(begin, end),
                    .state = {},
                    .weight_decay = 0.1,
                    .matrix = true};
        slice.state.push_back(Tensor(momentum).flat().rows(begin, end));
        call(slice);
        begin = end;
      }
    };
    each_slice([&](const Slice& slice) { rule->direct(slice, values, cpu_ops(), machine.stream); });
    make_orthogonal(Tensor(grad), rule->newton_schulz_steps(), rule->direction_scale(shape[0], shape[1]),
                    cpu_ops(), machine.stream);
    each_slice([&](const Slice& slice) { rule->update(slice, values, cpu_ops(), machine.stream); });
  }
  machine.stream.synchronize();
  return weight.values();
}

TEST(Muon, MakesTheStepsOfPyTorch) {
  for (const auto& [name, matrix] : test::load_golden_matrices())
    for (const auto& [way, expected] : matrix.results) {
      SCOPED_TRACE(name + " " + way);
      const size_t space = way.find(' ');
      const OptimizerConfig config = muon(way.substr(0, space), space != way.npos);
      const auto all = static_cast<int64_t>(matrix.weight.size());
      EXPECT_LT(test::relative_error(trained(config, DType::F64, matrix, {all}), expected), 1e-12);
      EXPECT_LT(test::relative_error(trained(config, DType::F32, matrix, {all}), expected), 1e-4);
    }
}

TEST(Muon, HasTheSameBitsForAllSlices) {
  const test::GoldenMatrix matrix = test::load_golden_matrices().at("tall");
  const auto all = static_cast<int64_t>(matrix.weight.size());
  const Values whole = trained(muon(), DType::F32, matrix, {all});
  EXPECT_EQ(trained(muon(), DType::F32, matrix, {13, 256, all}), whole);
}

// All singular values near 1: X X^T is near the identity.
TEST(Muon, DirectionsAreNearlyOrthogonal) {
  Machine machine(2);
  for (const Shape& shape : {Shape{24, 60}, Shape{60, 24}}) {
    const Host x(DType::F64, shape, random_values(shape.elements(), 3));
    make_orthogonal(Tensor(x), 10, 1, cpu_ops(), machine.stream);
    machine.stream.synchronize();
    const Values values = x.values();
    double squares = 0;
    for (const double value : values) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares / 24), 0.95, 0.2) << shape[0];
  }
}

TEST(Muon, OfZeroIsZero) {
  Machine machine(2);
  const Host x(DType::F32, {4, 6});
  make_orthogonal(Tensor(x), 5, 1, cpu_ops(), machine.stream);
  machine.stream.synchronize();
  EXPECT_EQ(x.values(), Values(24, 0.0));
}

TEST(Muon, KeepsOneMomentOfMatricesAndTwoOfOthers) {
  const std::unique_ptr<UpdateRule> rule = make_update_rule(muon());
  const std::vector<std::string_view> names(rule->state_names().begin(), rule->state_names().end());
  EXPECT_EQ(names, (std::vector<std::string_view>{"muon_momentum", "adam_m", "adam_v"}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rule->has_state(i, true), i == 0);
    EXPECT_EQ(rule->has_state(i, false), i != 0);
  }
}

}  // namespace
}  // namespace trifold
