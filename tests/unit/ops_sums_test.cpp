#include "core/exact_sum.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

TEST(Sums, SquaresAndWeightedAreAddedToTheTotal) {
  for (int64_t n : {0, 1, 100, 4097, 100003}) {
    const Values x = random_values(n, 1);
    const Values weight = random_values(n, 2);
    check_everywhere(
        {{2.5 + dot(x, x)}, {-1 + dot(x, weight)}},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Host squares(DType::F64, {1}, {2.5});
          const Host weighted(DType::F64, {1}, {-1});
          const Host in(dtype, {n}, x);
          ops.sum_squares(stream, squares, in);
          ops.weighted_sum(stream, weighted, in, Host(DType::F32, {n}, weight));
          return {squares.values(), weighted.values()};
        },
        1e-12, 1e-12);
  }
}

// As many threads as there are: the limbs are those of adding one by one, special numbers too.
TEST(Sums, ExactOnesAreThoseOfAddingOneByOne) {
  Values x = random_values(20000, 3);
  for (size_t i = 0; i < 3000; ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 2090) - 1070);
  Machine machine(3);
  for (const bool finite : {true, false}) {
    if (!finite) {
      x[77] = HUGE_VAL;
      x[19000] = NAN;
    }
    ExactSum expected;
    expected.add(x);
    const auto count = static_cast<int64_t>(x.size());
    const Buffer limbs(ExactSum::kLimbs * sizeof(int64_t));
    const Tensor sums = limbs.tensor(DType::I64, {ExactSum::kLimbs});
    // In two parts, of which the second is a single number.
    cpu_ops().exact_sum(machine.stream, sums, Host(DType::F64, {count - 1}, {x.begin(), x.end() - 1}));
    cpu_ops().exact_sum(machine.stream, sums, Host(DType::F64, {1}, {x.back()}));
    ExactSum sum;
    sum.add_limbs({sums.as<int64_t>(), ExactSum::kLimbs});
    EXPECT_EQ(sum.limbs(), expected.limbs());
    EXPECT_EQ(std::isnan(sum.value()), !finite);
  }
  EXPECT_THROW(cpu_ops().exact_sum(machine.stream, Host(DType::F64, {70}), Host(DType::F64, {1})), Error);
}

// The update as the paper writes it, without folded constants.
void adamw_reference(Values& p, Values& m, Values& v, const Values& g, const AdamW& rule) {
  for (size_t i = 0; i < p.size(); ++i) {
    const double grad = g[i] * rule.grad_scale;
    m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * grad;
    v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * grad * grad;
    const double m_hat = m[i] / (1 - std::pow(rule.beta1, static_cast<double>(rule.step)));
    const double v_hat = v[i] / (1 - std::pow(rule.beta2, static_cast<double>(rule.step)));
    p[i] -= rule.lr * (m_hat / (std::sqrt(v_hat) + rule.eps) + rule.weight_decay * p[i]);
  }
}

TEST(AdamWTest, ThreeStepsAsInThePaper) {
  for (int64_t n : {1, 33, 20011}) {
    AdamW rule{.lr = 0.01,
               .beta1 = 0.9,
               .beta2 = 0.95,
               .eps = 1e-8,
               .weight_decay = 0.1,
               .step = 1,
               .grad_scale = 0.5};
    const Values start = random_values(n, 1);
    Values p = start;
    Values m(p.size());
    Values v(p.size());
    for (rule.step = 1; rule.step <= 3; ++rule.step)
      adamw_reference(p, m, v, random_values(n, 10 + static_cast<uint64_t>(rule.step)), rule);
    check_everywhere({p, m, v}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
      const Host param(dtype, {n}, start);
      const Host first(dtype, {n});
      const Host second(dtype, {n});
      AdamW step = rule;
      for (step.step = 1; step.step <= 3; ++step.step)
        ops.adamw(stream, param, Tensor{}, first, second,
                  Host(dtype, {n}, random_values(n, 10 + static_cast<uint64_t>(step.step))), step);
      return {param.values(), first.values(), second.values()};
    });
  }
}

TEST(AdamWTest, SlicesGiveTheBitsOfTheWhole) {
  const int64_t n = 1000;
  const AdamW rule{.lr = 0.01, .weight_decay = 0.1, .step = 4};
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64}) {
      const Host g(dtype, {n}, random_values(n, 3));
      const auto updated = [&](int64_t slice) {
        const Host p(dtype, {n}, random_values(n, 1));
        const Host m(dtype, {n}, random_values(n, 2));
        const Host v(dtype, {n}, Values(static_cast<size_t>(n), 0.5));
        for (int64_t begin = 0; begin < n; begin += slice) {
          const int64_t end = std::min(n, begin + slice);
          ops.adamw(stream, Tensor(p).flat(begin, end), Tensor{}, Tensor(m).flat(begin, end),
                    Tensor(v).flat(begin, end), Tensor(g).flat(begin, end), rule);
        }
        return p.values();
      };
      EXPECT_EQ(updated(n), updated(37));
    }
  });
}

}  // namespace
}  // namespace trifold::ops_test
