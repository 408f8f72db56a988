// Gradients of every rule of lowering against differences of losses, in f64.
//
// Each case is run as one block and as blocks of one node each, so that every value crosses a boundary; whole and with
// the backward parts apart; and with recomputation.
#include "graph_differences.h"

#include <gtest/gtest.h>

#include <set>

#include "graph/steps/rules.h"
#include "graph_lowered_run.h"

namespace trifold::graph::lowering {
namespace {

constexpr int64_t kSamples = 3;
constexpr double kTolerance = 1e-8;

// The derivative of f with respect to x, with an error of step^4.
template <class F>
double derivative(double& x, F&& f) {
  constexpr double kStep = 1e-3;
  const double before = x;
  const auto at = [&](double offset) {
    x = before + offset;
    return f();
  };
  const double slope = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  x = before;
  return slope;
}

void expect_near(double seen, double wanted, const std::string& what) {
  EXPECT_NEAR(seen, wanted, kTolerance * std::max(1.0, std::abs(wanted))) << what;
}

bool has_gradient(const std::vector<double>& slope) {
  return std::any_of(slope.begin(), slope.end(), [](double each) { return std::abs(each) > 1e-6; });
}

class Differences : public testing::TestWithParam<Case> {};

TEST_P(Differences, AreTheGradients) {
  SmallModel model(GetParam().text);
  std::map<std::string, std::vector<double>> slopes;
  double loss = 0;
  for (const bool each : {false, true})
    for (const bool repeats : {false, true}) {
      if (repeats && !each) continue;
      LoweredRun run(model, kSamples, each, repeats);
      std::vector<std::vector<double>> entering;
      const double seen = run.loss(&entering);
      if (slopes.empty()) {
        loss = seen;
        ASSERT_TRUE(std::isfinite(loss));
        ASSERT_FALSE(run.trained().empty());
        for (const auto& [name, parameter] : run.trained())
          for (double& value : run.values(parameter))
            slopes[name].push_back(kLossScale * derivative(value, [&] { return run.loss(); }));
        // An operand that a rule forgot would have no effect on the loss either.
        for (const auto& [name, slope] : slopes)
          EXPECT_NE(has_gradient(slope), model.without_gradient.contains(name)) << name;
      }
      expect_near(seen, loss, "loss");
      for (const Backward kind : {Backward::Joint, Backward::Apart, Backward::InScratch}) {
        if (repeats && kind == Backward::InScratch) continue;
        const std::string how = std::string(each ? "blocks of one node" : "one block") +
                                (repeats ? ", recomputed" : "") +
                                (kind == Backward::Apart       ? ", backward parts apart"
                                 : kind == Backward::InScratch ? ", in the memory of temporaries"
                                                               : "");
        SCOPED_TRACE(how);
        const LoweredRun::Gradients gradients = run.gradients(kind);
        expect_near(gradients.loss, loss, "loss of training");
        for (const auto& [name, slope] : slopes)
          for (size_t i = 0; i < slope.size(); ++i)
            expect_near(gradients.parameters.at(name).at(i), slope[i],
                        name + ", element " + std::to_string(i));
        for (size_t block = 0; block + 1 < run.blocks() && !repeats; ++block)
          for (const auto& [begin, end] : run.trained_parts(block))
            for (size_t i = begin; i < end; ++i)
              expect_near(gradients.boundaries[block][i],
                          kLossScale * derivative(entering[block][i],
                                                  [&] { return run.loss_from(block + 1, entering[block]); }),
                          "output of block " + std::to_string(block) + ", element " + std::to_string(i));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Rules, Differences, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(DifferencesOfRules, EveryRuleHasACase) {
  std::set<std::string_view> seen;
  for (const Case& each : all_cases()) {
    SmallModel model(each.text);
    const std::vector<Dependence> kinds = partition(model.graph);
    for (const Node& node : model.graph.nodes)
      if (kinds[static_cast<size_t>(node.outputs[0].index)] == Dependence::Trained)
        seen.insert(node.operation->name);
    const LoweredRun run(model, kSamples, false);
    for (const StepPlan& step : run.lowered().steps) seen.insert(step.rule->name);
  }
  for (const Rule& rule : rules()) EXPECT_TRUE(seen.contains(rule.name)) << "no case of " << rule.name;
  // Operations through which gradients flow, but which cannot be trained.
  const std::set<std::string_view> refused{"cumsum", "diff", "fill.Scalar",  "fill.Tensor",
                                           "gather", "pad",  "pow.Scalar",   "remainder.Scalar",
                                           "tril",   "triu", "where.Scalar", "zero"};
  for (const Operation& operation : operations()) {
    if (operation.form != Form::Node || operation.gradient != Gradient::Flows) continue;
    EXPECT_NE(seen.contains(operation.name), refused.contains(operation.name)) << operation.name;
  }
}

}  // namespace
}  // namespace trifold::graph::lowering
