#include "optim/update_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/exact_sum.h"
#include "support/golden.h"
#include "unit/ops_support.h"

namespace trifold {
namespace {

using ops_test::Host;
using ops_test::Machine;
using ops_test::random_values;
using ops_test::Values;

constexpr int64_t kSteps = 20;

// The memory of one parameter of n elements: what a run keeps of it.
struct Parameter {
  Parameter(const UpdateRule& rule, DType dtype, const Values& start, double decay)
      : n(static_cast<int64_t>(start.size())),
        weight_decay(decay),
        master(dtype, {n}, start),
        copy(dtype, {n}) {
    for (size_t i = 0; i < rule.state_names().size(); ++i) state.emplace_back(dtype, Shape{n});
  }

  Slice slice(const Tensor& grad, int64_t begin, int64_t end) const {
    Slice result{.master = Tensor(master).flat(begin, end),
                 .weight = Tensor(copy).flat(begin, end),
                 .grad = grad.flat(begin, end),
                 .state = {},
                 .weight_decay = weight_decay};
    for (const Host& tensor : state) result.state.push_back(Tensor(tensor).flat(begin, end));
    return result;
  }

  int64_t n;
  double weight_decay;
  Host master, copy;
  std::vector<Host> state;
};

// Both phases of one step over slices that end at `cuts` (the last is n), as an optimizer would drive them.
void step(const UpdateRule& rule, const Parameter& parameter, const Values& gradient,
          const std::vector<int64_t>& cuts, StepValues values, const OpTable& ops, Stream& stream) {
  const Host grad(Tensor(parameter.master).dtype, {parameter.n}, gradient);
  std::vector<Slice> slices;
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    slices.push_back(parameter.slice(grad, begin, end));
    begin = end;
  }
  if (rule.needs_norms()) {
    ExactSum weight, direction;
    for (const Slice& slice : slices) {
      const int64_t chunks = (slice.master.elements() + kNormChunk - 1) / kNormChunk;
      const Host weight_squares(DType::F64, {chunks});
      const Host direction_squares(DType::F64, {chunks});
      rule.measure(slice, values, {weight_squares, direction_squares}, ops, stream);
      weight.add(weight_squares.values());
      direction.add(direction_squares.values());
    }
    values.trust_ratio = rule.trust_ratio(weight.value(), direction.value(), parameter.weight_decay, values);
  }
  for (const Slice& slice : slices) rule.update(slice, values, ops, stream);
}

OptimizerConfig config_of(const test::GoldenRule& golden) {
  OptimizerConfig config;
  config.optimizer = value_named<OptimizerKind>(golden.name == "sgd_plain" ? "sgd" : golden.name).value();
  const auto take = [&](const char* name, double& field) {
    if (const auto found = golden.constants.find(name); found != golden.constants.end())
      field = found->second;
  };
  take("adam_beta1", config.adam_beta1);
  take("adam_beta2", config.adam_beta2);
  take("adam_eps", config.adam_eps);
  take("sgd_momentum", config.sgd_momentum);
  take("lars_eta", config.lars_eta);
  take("lars_eps", config.lars_eps);
  take("adagrad_eps", config.adagrad_eps);
  return config;
}

// The worst distance from PyTorch's weights after any of the steps.
double distance_from(const test::GoldenRule& golden, const test::GoldenUpdates& updates, DType dtype,
                     const OpTable& ops) {
  Machine machine(2);
  const auto rule = make_update_rule(config_of(golden));
  const Parameter parameter(*rule, dtype, updates.start, updates.weight_decay);
  const auto n = static_cast<size_t>(parameter.n);
  double worst = 0;
  for (int64_t t = 1; t <= kSteps; ++t) {
    const auto row = static_cast<std::ptrdiff_t>(static_cast<size_t>(t - 1) * n);
    const auto length = static_cast<std::ptrdiff_t>(n);
    const Values gradient(updates.gradient.begin() + row, updates.gradient.begin() + row + length);
    const Values expected(updates.after.begin() + row, updates.after.begin() + row + length);
    step(*rule, parameter, gradient, {parameter.n}, {.lr = golden.constants.at("lr"), .step = t}, ops,
         machine.stream);
    worst = std::max(worst, ops_test::distance(parameter.master.values(), expected));
    EXPECT_EQ(parameter.copy.values(), parameter.master.values());
  }
  return worst;
}

TEST(UpdateRuleTest, TwentyStepsAreThoseOfPyTorch) {
  const auto rules = test::load_golden_optimizers();
  ASSERT_EQ(rules.size(), 6U);
  for (const test::GoldenRule& golden : rules)
    for (const test::GoldenUpdates& updates : golden.tensors)
      for (const OpTable* ops : all_cpu_ops()) {
        SCOPED_TRACE(golden.name + ", " + updates.name + ", " + ops->name);
        ASSERT_EQ(updates.after.size(), updates.start.size() * kSteps);
        EXPECT_LE(distance_from(golden, updates, DType::F64, *ops), 1e-12);
        EXPECT_LE(distance_from(golden, updates, DType::F32, *ops), 1e-6);
      }
}

OptimizerConfig config_named(const std::string& name, double momentum = 0.9) {
  OptimizerConfig config;
  config.optimizer = value_named<OptimizerKind>(name).value();
  config.sgd_momentum = momentum;
  return config;
}

std::vector<OptimizerConfig> every_config() {
  return {config_named("adam"), config_named("lamb"),   config_named("lars"),   config_named("lars", 0),
          config_named("sgd"),  config_named("sgd", 0), config_named("adagrad")};
}

// Weights, copy and state after three steps with slices that end at `cuts`.
std::vector<Values> three_steps(const UpdateRule& rule, DType dtype, const std::vector<int64_t>& cuts,
                                const OpTable& ops, int workers) {
  Machine machine(workers);
  const int64_t n = cuts.back();
  const Parameter parameter(rule, dtype, random_values(n, 1), 0.1);
  for (int64_t t = 1; t <= 3; ++t)
    step(rule, parameter, random_values(n, 10 + static_cast<uint64_t>(t)), cuts,
         {.lr = 0.01, .step = t, .grad_scale = 0.37}, ops, machine.stream);
  std::vector<Values> result = {parameter.master.values(), parameter.copy.values()};
  for (const Host& tensor : parameter.state) result.push_back(tensor.values());
  return result;
}

TEST(UpdateRuleTest, SlicesAndThreadsKeepTheBitsOfTheWhole) {
  const int64_t n = 100 * kNormChunk + 77;  // enough for several workers
  const std::vector<std::vector<int64_t>> cuts = {
      {kNormChunk, n}, {37 * kNormChunk, 38 * kNormChunk, n}, {100 * kNormChunk, n}};
  for (const OptimizerConfig& config : every_config()) {
    const auto rule = make_update_rule(config);
    for (const OpTable* ops : all_cpu_ops())
      for (const DType dtype : {DType::F32, DType::F64}) {
        SCOPED_TRACE(std::string(name_of(config.optimizer)) + ", " + ops->name);
        const auto whole = three_steps(*rule, dtype, {n}, *ops, 1);
        EXPECT_EQ(three_steps(*rule, dtype, {n}, *ops, 3), whole);
        for (const auto& cut : cuts) EXPECT_EQ(three_steps(*rule, dtype, cut, *ops, 2), whole);
      }
  }
}

// A parameter of several chunks on several owners against algorithm 2 in one plain loop: the ratio is that of
// the whole parameter.
TEST(UpdateRuleTest, LambMeasuresTheWholeParameter) {
  const int64_t n = 3 * kNormChunk + 100;
  const OptimizerConfig config = config_named("lamb");
  const double b1 = config.adam_beta1;
  const double b2 = config.adam_beta2;
  const double decay = 0.01;
  const double lr = 0.02;
  Values w = random_values(n, 1);
  Values m(w.size());
  Values v(w.size());
  const auto rule = make_update_rule(config);
  const Parameter parameter(*rule, DType::F64, w, decay);
  Machine machine(1);
  for (int t = 1; t <= kSteps; ++t) {
    const Values g = random_values(n, 100 + static_cast<uint64_t>(t));
    Values r(w.size());
    double w_norm = 0;
    double r_norm = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      r[i] = m[i] / (1 - std::pow(b1, t)) / (std::sqrt(v[i] / (1 - std::pow(b2, t))) + config.adam_eps);
      w_norm += w[i] * w[i];
      r_norm += (r[i] + decay * w[i]) * (r[i] + decay * w[i]);
    }
    for (size_t i = 0; i < w.size(); ++i) w[i] -= lr * std::sqrt(w_norm / r_norm) * (r[i] + decay * w[i]);
    step(*rule, parameter, g, {kNormChunk, 2 * kNormChunk, n}, {.lr = lr, .step = t}, cpu_ops(),
         machine.stream);
    ASSERT_LE(ops_test::distance(parameter.master.values(), w), 1e-12) << "step " << t;
  }
}

// A parameter of several chunks on several owners against the formula in one plain loop, with scaled gradients: the
// norm in the ratio is that of the scaled gradient of the whole parameter.
TEST(UpdateRuleTest, LarsMeasuresTheWholeParameter) {
  const int64_t n = 3 * kNormChunk + 100;
  OptimizerConfig config = config_named("lars", 0.8);
  config.lars_eta = 0.02;
  config.lars_eps = 0.5;
  const double decay = 0.01;
  const double lr = 3;
  const double scale = 0.25;
  Values w = random_values(n, 1);
  Values v(w.size());
  const auto rule = make_update_rule(config);
  const Parameter parameter(*rule, DType::F64, w, decay);
  Machine machine(1);
  for (int t = 1; t <= kSteps; ++t) {
    const Values g = random_values(n, 100 + static_cast<uint64_t>(t));
    double w_norm = 0;
    double g_norm = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      w_norm += w[i] * w[i];
      g_norm += scale * g[i] * scale * g[i];
    }
    w_norm = std::sqrt(w_norm);
    g_norm = std::sqrt(g_norm);
    const double local = config.lars_eta * w_norm / (g_norm + decay * w_norm + config.lars_eps);
    for (size_t i = 0; i < w.size(); ++i) {
      v[i] = config.sgd_momentum * v[i] + lr * local * (scale * g[i] + decay * w[i]);
      w[i] -= v[i];
    }
    step(*rule, parameter, g, {kNormChunk, 2 * kNormChunk, n}, {.lr = lr, .step = t, .grad_scale = scale},
         cpu_ops(), machine.stream);
    ASSERT_LE(ops_test::distance(parameter.master.values(), w), 1e-12) << "step " << t;
    ASSERT_LE(ops_test::distance(parameter.state[0].values(), v), 1e-12) << "step " << t;
  }
}

// Rounded once, from the master that is written in the same pass; the master's bits do not change for it.
TEST(UpdateRuleTest, CopiesIn16BitsAreTheRoundedMaster) {
  const int64_t n = 40 * kNormChunk + 33;
  for (const OptimizerConfig& config : every_config())
    for (const OpTable* ops : all_cpu_ops())
      for (const DType narrow : {DType::BF16, DType::F16}) {
        SCOPED_TRACE(std::string(name_of(config.optimizer)) + ", " + ops->name);
        const auto rule = make_update_rule(config);
        const Parameter parameter(*rule, DType::F32, random_values(n, 1), 0.1);
        const Parameter alone(*rule, DType::F32, random_values(n, 1), 0.1);
        const Host copy(narrow, {n});
        const Host grad(DType::F32, {n}, random_values(n, 2));
        const Host squares(DType::F64, {n / kNormChunk + 1});
        const StepValues values{.lr = 0.1, .trust_ratio = 0.5};
        Machine machine(3);
        for (const Parameter* each : {&parameter, &alone}) {
          Slice slice = each->slice(grad, 0, n);
          slice.weight = each == &parameter ? Tensor(copy) : Tensor{};
          if (rule->needs_norms()) rule->measure(slice, values, {squares, squares}, *ops, machine.stream);
          rule->update(slice, values, *ops, machine.stream);
        }
        EXPECT_EQ(parameter.master.values(), alone.master.values());
        EXPECT_EQ(copy.values(), Host(narrow, {n}, parameter.master.values()).values());
      }
}

TEST(UpdateRuleTest, WithoutACopyOnlyTheMasterIsWritten) {
  Machine machine(1);
  for (const OptimizerConfig& config : every_config()) {
    const auto rule = make_update_rule(config);
    const Values start = random_values(300, 1);
    const Parameter with(*rule, DType::F32, start, 0.1);
    const Parameter without(*rule, DType::F32, start, 0.1);
    const Host grad(DType::F32, {300}, random_values(300, 2));
    const Host squares(DType::F64, {2});
    for (const Parameter* parameter : {&with, &without}) {
      Slice slice = parameter->slice(grad, 0, 300);
      if (parameter == &without) slice.weight = {};
      const StepValues values{.lr = 0.1, .trust_ratio = 0.5};
      if (rule->needs_norms()) rule->measure(slice, values, {squares, squares}, cpu_ops(), machine.stream);
      rule->update(slice, values, cpu_ops(), machine.stream);
    }
    EXPECT_EQ(with.master.values(), without.master.values()) << name_of(config.optimizer);
    EXPECT_NE(with.master.values(), start) << name_of(config.optimizer);
    EXPECT_EQ(without.copy.values(), Values(300, 0.0)) << name_of(config.optimizer);
  }
}

// The numbers read at run time are used, whatever was passed with the call.
TEST(UpdateRuleTest, NumbersInMemoryHaveTheBitsOfValues) {
  const int64_t n = 40 * kNormChunk + 33;
  const StepValues values{.lr = 0.01, .step = 3, .grad_scale = 0.37, .trust_ratio = 0.5};
  const StepValues others{.lr = 9, .step = 7, .grad_scale = -2, .trust_ratio = 4};
  Machine machine(3);
  for (const OptimizerConfig& config : every_config())
    for (const OpTable* ops : all_cpu_ops())
      for (const DType dtype : {DType::F32, DType::F64}) {
        SCOPED_TRACE(std::string(name_of(config.optimizer)) + ", " + ops->name);
        const auto rule = make_update_rule(config);
        const Parameter plain(*rule, dtype, random_values(n, 1), 0.1);
        const Parameter late(*rule, dtype, random_values(n, 1), 0.1);
        const Host grad(dtype, {n}, random_values(n, 2));
        const Host squares(DType::F64, {n / kNormChunk + 1});
        const RuleNumbers numbers = rule->numbers(0.1, values);
        const Host in_memory(DType::F64, {static_cast<int64_t>(kRuleNumbers)},
                             {numbers.begin(), numbers.end()});
        for (const Parameter* each : {&plain, &late}) {
          Slice slice = each->slice(grad, 0, n);
          if (each == &late) slice.numbers = in_memory;
          const StepValues& given = each == &late ? others : values;
          if (rule->needs_norms()) rule->measure(slice, given, {squares, squares}, *ops, machine.stream);
          rule->update(slice, given, *ops, machine.stream);
        }
        EXPECT_EQ(late.master.values(), plain.master.values());
        EXPECT_EQ(late.copy.values(), plain.copy.values());
        for (size_t i = 0; i < plain.state.size(); ++i)
          EXPECT_EQ(late.state[i].values(), plain.state[i].values());
      }
}

TEST(UpdateRuleTest, NamesItsState) {
  const auto names = [](const OptimizerConfig& config) {
    const auto rule = make_update_rule(config);
    return std::vector<std::string>(rule->state_names().begin(), rule->state_names().end());
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(config_named("adam")), (Names{"adam_m", "adam_v"}));
  EXPECT_EQ(names(config_named("lamb")), (Names{"lamb_m", "lamb_v"}));
  EXPECT_EQ(names(config_named("lars")), Names{"lars_momentum"});
  EXPECT_EQ(names(config_named("lars", 0)), Names{});
  EXPECT_EQ(names(config_named("sgd")), Names{"sgd_momentum"});
  EXPECT_EQ(names(config_named("sgd", 0)), Names{});
  EXPECT_EQ(names(config_named("adagrad")), Names{"adagrad_sum"});
}

TEST(UpdateRuleTest, WrongCallsAreErrors) {
  Machine machine(1);
  const auto adam = make_update_rule(config_named("adam"));
  const Parameter parameter(*adam, DType::F32, random_values(8, 1), 0);
  const Host grad(DType::F32, {8});
  const Host squares(DType::F64, {1});
  const Slice sound = parameter.slice(grad, 0, 8);
  EXPECT_THROW(adam->measure(sound, {}, {squares, squares}, cpu_ops(), machine.stream), Error);
  EXPECT_THROW(adam->trust_ratio(9, 4, 0.1, {}), Error);
  const auto refused = [&](const Slice& slice, const StepValues& values) {
    EXPECT_THROW(adam->update(slice, values, cpu_ops(), machine.stream), Error);
  };
  refused(sound, {.step = 0});
  Slice slice = sound;
  slice.state.pop_back();
  refused(slice, {});
  slice = sound;
  slice.grad = Tensor(grad).flat(0, 7);
  refused(slice, {});
  slice = sound;
  slice.weight = Tensor(grad).flat(0, 7);
  refused(slice, {});
  const Host whole_numbers(DType::I32, {8});
  slice.weight = whole_numbers;
  refused(slice, {});
  const Host wide(DType::F64, {8});
  slice.weight = wide;
  refused(slice, {});
  slice = sound;
  slice.numbers = wide;
  refused(slice, {});
}

TEST(TrustRatio, IsOneWhereANormOrTheDecayIsZero) {
  for (const char* name : {"lamb", "lars"}) {
    SCOPED_TRACE(name);
    const auto rule = make_update_rule(config_named(name));
    EXPECT_NE(rule->trust_ratio(9, 4, 0.1, {}), 1);
    EXPECT_EQ(rule->trust_ratio(0, 4, 0.1, {}), 1);
    EXPECT_EQ(rule->trust_ratio(9, 0, 0.1, {}), 1);
    EXPECT_EQ(rule->trust_ratio(9, 4, 0, {}), 1);
  }
}

TEST(TrustRatio, OfLambIsTheRatioOfTheNorms) {
  EXPECT_EQ(make_update_rule(config_named("lamb"))->trust_ratio(9, 4, 0.1, {.grad_scale = 5}), 1.5);
}

TEST(TrustRatio, OfLarsHasTheNormOfTheScaledGradientAndDecay) {
  OptimizerConfig config = config_named("lars");
  config.lars_eta = 0.5;
  config.lars_eps = 0.25;
  const auto rule = make_update_rule(config);
  EXPECT_EQ(rule->trust_ratio(9, 4, 0.25, {.grad_scale = 0.5}), 0.5 * 3 / (1 + 0.75 + 0.25));
  EXPECT_EQ(rule->trust_ratio(9, 4, 0.25, {.grad_scale = 0}), 1);
}

}  // namespace
}  // namespace trifold
