// Operations of a mixture of experts: the worked example of three tokens and four experts, gradients, and
// rows whose bits do not depend on their neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

const Values kLogits = {.5, -1, 2, .1, 1, .9, -.3, 0, -.2, .4, .6, 1.5};
const Values kOutputGradients = {.3, -.7, .2, .5, .1, .4, -.6, .9, -.5, .8, .35, -.25};  // [T, E]
constexpr int64_t kTokens = 3, kExperts = 4, kChoices = 2;

// The operations' results for the example.
struct Routed {
  Values gates, chosen, balance, z, counts, gradient;
};

Routed routed(const OpTable& ops, Stream& stream, const Values& logits, const Router& how,
              const RouterLosses& losses, double of_gates, const Values& bias = {}) {
  const Host z(DType::F64, {kTokens, kExperts}, logits);
  const Host shift(DType::F64, {kExperts}, bias);
  const Shape choices{kTokens, how.choices};
  const Host gates(DType::F64, choices), chosen(DType::I32, choices), even(DType::F64, {kTokens}),
      size(DType::F64, {kTokens}), counts(DType::I32, {1, kExperts}), dgates(DType::F64, choices),
      dz(DType::F64, {kTokens, kExperts}), weight(DType::F32, {kTokens}, {1, 1, 1});
  ops.route(stream, gates, chosen, z, bias.empty() ? Tensor{} : shift, how);
  ops.router_losses(stream, even, size, counts, z, {}, kTokens, how);
  const Tensor slopes = dgates;
  const Values experts = chosen.values();
  for (size_t c = 0; c < experts.size(); ++c)
    slopes.as<double>()[c] =
        of_gates *
        kOutputGradients[c / static_cast<size_t>(how.choices) * kExperts + static_cast<size_t>(experts[c])];
  ops.route_backward(stream, dz, dgates, gates, chosen, z, counts, weight, 1.0 / kTokens, losses, how);
  return {gates.values(), experts, even.values(), size.values(), counts.values(), dz.values()};
}

double mean(const Values& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void expect_near(const Values& got, const Values& expected) {
  ASSERT_GE(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

TEST(Experts, WorkedExample) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Router chosen{kChoices, RouterGate::Chosen, 1};
    const Routed one = routed(ops, stream, kLogits, chosen, {}, 1);
    EXPECT_EQ(one.chosen, (Values{0, 2, 0, 1, 2, 3}));
    EXPECT_EQ(one.counts, (Values{2, 1, 2, 1}));
    expect_near(one.gates, {.182426, .817574, .524979, .475021, .289050, .710950});
    EXPECT_NEAR(.01 * mean(one.balance), .0103697359, 1e-9);
    EXPECT_NEAR(1e-3 * mean(one.z), .0046374393, 1e-9);
    expect_near(one.gradient, {.01491465, 0, -.01491465, 0});
    const Router all{kChoices, RouterGate::All, 1};
    expect_near(routed(ops, stream, kLogits, all, {}, 1).gradient,
                {.01762209, -.00656799, .00867725, -.01973134});
    const Router sigmoid{kChoices, RouterGate::Sigmoid, 2.5};
    const Routed three = routed(ops, stream, kLogits, sigmoid, {}, 1);
    expect_near(three.gradient, {.02289942, 0, -.00723016, 0});
    EXPECT_NEAR(.01 * mean(three.balance), .0101758638, 1e-9);
    expect_near(routed(ops, stream, kLogits, chosen, {.01, 0}, 0).gradient,
                {.00004885, -.00006688, .00021894, -.00020091});
    expect_near(routed(ops, stream, kLogits, chosen, {0, 1e-3}, 0).gradient,
                {.00024600, .00005489, .00110249, .00016490});
  });
}

TEST(Experts, RouterGradient) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const RouterLosses losses{0.3, 0.2};
    for (const RouterGate gate : {RouterGate::Chosen, RouterGate::All, RouterGate::Sigmoid})
      for (const int64_t choices : {int64_t{1}, int64_t{2}, int64_t{4}}) {
        const Router how{choices, gate, 1.7};
        const auto loss = [&](const Values& logits) {
          const Routed at = routed(ops, stream, logits, how, losses, 1);
          double sum = losses.balance * mean(at.balance) + losses.z * mean(at.z);
          for (size_t c = 0; c < at.gates.size(); ++c)
            sum += at.gates[c] * kOutputGradients[c / static_cast<size_t>(choices) * kExperts +
                                                  static_cast<size_t>(at.chosen[c])];
          return sum;
        };
        check_gradient(loss, kLogits, routed(ops, stream, kLogits, how, losses, 1).gradient, 1e-9);
      }
  });
}

// Of a sequence whose first token is on one rank and the other two on another: losses and gradients of the whole one.
TEST(Experts, SequencesMayBeCutOverRanks) {
  constexpr RouterLosses kLosses{0.3, 0.2};
  const Router whole{kChoices, RouterGate::Chosen, 1};
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  const Values twice = [] {
    Values values = kLogits;
    values.insert(values.end(), kLogits.begin(), kLogits.begin() + kExperts);
    return values;
  }();  // four tokens, of which each rank has two
  const auto run = [&](const Values& logits, int64_t tokens, const Router& how, Values given) {
    const Host z(DType::F64, {tokens, kExperts}, logits), even(DType::F64, {tokens}),
        size(DType::F64, {tokens}), counts(DType::I32, {1, kExperts}, given),
        gates(DType::F64, {tokens, kChoices}), chosen(DType::I32, {tokens, kChoices}),
        dz(DType::F64, {tokens, kExperts}),
        weight(DType::F32, {tokens}, Values(static_cast<size_t>(tokens), 1));
    const Host dgates(DType::F64, {tokens, kChoices}, Values(static_cast<size_t>(tokens * kChoices), 0));
    cpu_ops().route(stream, gates, chosen, z, {}, how);
    cpu_ops().router_losses(stream, even, size, counts, z, {}, tokens, how);
    cpu_ops().route_backward(stream, dz, dgates, gates, chosen, z, counts, weight, 1.0, kLosses, how);
    return std::array{even.values(), size.values(), dz.values(), counts.values()};
  };
  const auto all = run(twice, 4, whole, Values(kExperts, 0));
  Router part = whole;
  part.counted = true;
  for (const size_t rank : {0U, 1U}) {
    const auto begin = twice.begin() + static_cast<std::ptrdiff_t>(rank * 2 * kExperts);
    const auto here = run(Values(begin, begin + 2 * kExperts), 2, part, all[3]);
    for (const size_t what : {0U, 1U, 2U}) {
      const size_t width = what == 2 ? kExperts : 1;
      for (size_t i = 0; i < 2 * width; ++i)
        EXPECT_EQ(here[what][i], all[what][rank * 2 * width + i]) << what << " " << i;
    }
    EXPECT_EQ(here[3], all[3]);
  }
}

// The worked example with counts of other tokens, and with none.
TEST(Experts, LossesReadCountsOfOtherTokens) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const auto check = [&](const Values& given, RouterGate gate, double expected, const Values& gradient) {
      Router how{kChoices, gate, 1};
      how.counted = true;
      const Host z(DType::F64, {kTokens, kExperts}, kLogits), even(DType::F64, {kTokens}),
          size(DType::F64, {kTokens}), counts(DType::I32, {1, kExperts}, given),
          gates(DType::F64, {kTokens, kChoices}), chosen(DType::I32, {kTokens, kChoices}),
          dgates(DType::F64, {kTokens, kChoices}, Values(kTokens * kChoices, 0)),
          dz(DType::F64, {kTokens, kExperts}), weight(DType::F32, {kTokens}, {1, 1, 1});
      ops.route(stream, gates, chosen, z, {}, how);
      ops.router_losses(stream, even, size, counts, z, {}, kTokens, how);
      ops.route_backward(stream, dz, dgates, gates, chosen, z, counts, weight, 1.0 / kTokens, {.01, 0}, how);
      EXPECT_NEAR(.01 * mean(even.values()), expected, 1e-12);
      EXPECT_NEAR(1e-3 * mean(size.values()), .0046374393, 1e-9);
      EXPECT_EQ(counts.values(), given);
      const Values slopes = dz.values();
      for (size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(slopes[i], gradient[i], 1e-12) << i;
    };
    const Values other{5, 1, 0, 6};
    check(other, RouterGate::Chosen, .009341410823978444,
          {0.0006186928348375909, -1.7506723251797402e-05, -0.001132737149294532, 0.0005315510377087383,
           0.0007913831678719884, -0.0008639295556674906, -0.00037918249551293346, 0.0004517288833084357,
           0.00012989801787051473, -0.0005329937260392591, -0.0008860233476582404, 0.0012891190558269854});
    check(other, RouterGate::Sigmoid, .010046091895768937, {});
    check({0, 0, 0, 0}, RouterGate::Chosen, 0, Values(12, 0));
  });
}

TEST(Experts, EqualLogitsGoToTheFirstAndABiasOnlyChooses) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Router how{kChoices, RouterGate::Sigmoid, 1};
    const Routed equal = routed(ops, stream, Values(12, 0.5), how, {}, 1);
    EXPECT_EQ(equal.chosen, (Values{0, 1, 0, 1, 0, 1}));
    const Routed biased = routed(ops, stream, Values(12, 0.5), how, {}, 1, {0, 0.1, 0, 0.2});
    EXPECT_EQ(biased.chosen, (Values{1, 3, 1, 3, 1, 3}));
    EXPECT_EQ(biased.gates, Values(6, 0.5));
    EXPECT_EQ(biased.counts, (Values{3, 3, 0, 0}));  // as if there were no bias
  });
}

// The choices of one token by their definition, over sorted lists.
std::vector<int64_t> best_in_groups(const Values& scores, const Router& how) {
  const auto experts = static_cast<int64_t>(scores.size());
  const int64_t each = experts / how.groups;
  const auto better = [](const Values& of) {
    return [&of](int64_t a, int64_t b) {
      const double left = of[static_cast<size_t>(a)], right = of[static_cast<size_t>(b)];
      return left > right || (left == right && a < b);
    };
  };
  Values sums;
  std::vector<int64_t> order(static_cast<size_t>(how.groups));
  for (int64_t g = 0; g < how.groups; ++g) {
    order[static_cast<size_t>(g)] = g;
    Values own(scores.begin() + g * each, scores.begin() + (g + 1) * each);
    std::sort(own.begin(), own.end(), std::greater<>());
    double sum = 0;
    for (int64_t i = 0; i < how.choices / how.kept_groups; ++i) sum += own[static_cast<size_t>(i)];
    sums.push_back(sum);
  }
  std::sort(order.begin(), order.end(), better(sums));
  std::vector<int64_t> left;
  for (int64_t i = 0; i < how.kept_groups; ++i)
    for (int64_t e = 0; e < each; ++e) left.push_back(order[static_cast<size_t>(i)] * each + e);
  std::sort(left.begin(), left.end(), better(scores));
  left.resize(static_cast<size_t>(how.choices));
  std::sort(left.begin(), left.end());
  return left;
}

TEST(Experts, GroupsLimitTheChoice) {
  constexpr int64_t kRows = 40, kAll = 24;
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Values logits = random_values(kRows * kAll, 5);
    Values shift = random_values(kAll, 6);
    for (double& b : shift) b -= 2;  // so that scores are negative, below those of experts that are left out
    for (const auto& [choices, groups, kept] :
         {std::tuple<int64_t, int64_t, int64_t>{4, 4, 2}, {6, 8, 3}, {3, 4, 3}, {4, 4, 1}, {2, 2, 2}})
      for (const RouterGate gate : {RouterGate::Chosen, RouterGate::All, RouterGate::Sigmoid}) {
        const Router how{choices, gate, 1, groups, kept};
        const Host z(DType::F64, {kRows, kAll}, logits), bias(DType::F64, {kAll}, shift);
        const Host gates(DType::F64, {kRows, choices}), chosen(DType::I32, {kRows, choices});
        ops.route(stream, gates, chosen, z, gate == RouterGate::Sigmoid ? bias : Tensor{}, how);
        const Values experts = chosen.values();
        for (int64_t t = 0; t < kRows; ++t) {
          Values scores(logits.begin() + t * kAll, logits.begin() + (t + 1) * kAll);
          double sum = 0;
          for (const double logit : scores) sum += std::exp(logit);
          for (size_t e = 0; e < scores.size(); ++e) {
            if (gate == RouterGate::All) scores[e] = std::exp(scores[e]) / sum;
            if (gate == RouterGate::Sigmoid) scores[e] = 1 / (1 + std::exp(-scores[e])) + shift[e];
          }
          const std::vector<int64_t> expected = best_in_groups(scores, how);
          for (int64_t s = 0; s < choices; ++s)
            EXPECT_EQ(experts[static_cast<size_t>(t * choices + s)],
                      static_cast<double>(expected[static_cast<size_t>(s)]))
                << "token " << t << " of " << groups << " groups";
        }
      }
  });
}

// Of an expert with few rows and with many, which are multiplied in several parts.
TEST(Experts, ARowDoesNotSeeItsNeighbours) {
  constexpr int64_t kWidth = 70, kInner = 250, kRows = 700;
  with_every_table([](const OpTable& ops, Stream& stream) {
    for (const bool transposed : {false, true})
      for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
        const Shape shape{2, transposed ? kInner : kWidth, transposed ? kWidth : kInner};
        const Host w(dtype, shape, random_values(2 * kInner * kWidth, 1));
        const Values all = random_values(kRows * kWidth, 2);
        const auto product = [&](int64_t begin, int64_t end, int64_t of_first) {
          const Host x(dtype, {end - begin, kWidth},
                       Values(all.begin() + begin * kWidth, all.begin() + end * kWidth));
          const Host y(dtype, {end - begin, kInner});
          const Host first(DType::I32, {3},
                           {0, static_cast<double>(of_first), static_cast<double>(end - begin)});
          ops.expert_product(stream, y, x, w, first, transposed);
          return y.values();
        };
        const Values whole = product(0, kRows, 0);
        for (const auto& [begin, end] :
             {std::pair<int64_t, int64_t>{0, 1}, {63, 70}, {5, 533}, {1, 642}, {699, 700}})
          EXPECT_EQ(product(begin, end, 0),
                    Values(whole.begin() + begin * kInner, whole.begin() + end * kInner))
              << name_of(dtype) << " rows " << begin << " to " << end;
        const Values cut = product(0, kRows, 77);  // the rows before are of the other expert
        EXPECT_EQ(Values(cut.begin() + 77 * kInner, cut.end()),
                  Values(whole.begin() + 77 * kInner, whole.end()));
      }
  });
}

}  // namespace
}  // namespace trifold::ops_test
