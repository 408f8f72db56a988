#include <limits>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

// Rows of logits over `vocab` ids, some of them padding, and a label and a weight for each row.
struct Loss {
  int64_t rows, columns, vocab;
  Values logits, labels, weight;
};

Loss loss_case(int64_t rows, int64_t columns, int64_t vocab) {
  Loss in{rows, columns, vocab, random_values(rows * columns, 1), {}, {}};
  for (double& value : in.logits) value *= 4;
  for (int64_t r = 0; r < rows; ++r) {
    in.labels.push_back(static_cast<double>((r * 7919 + 3) % vocab));
    in.weight.push_back(r % 5 == 4 ? 0 : 1 + 0.25 * static_cast<double>(r % 3));
  }
  return in;
}

double weighted_loss(const Loss& in, const Values& logits) {
  double total = 0;
  for (int64_t r = 0; r < in.rows; ++r) {
    double most = -INFINITY;
    double sum = 0;
    const double* row = logits.data() + r * in.columns;
    for (int64_t c = 0; c < in.vocab; ++c) most = std::max(most, row[c]);
    for (int64_t c = 0; c < in.vocab; ++c) sum += std::exp(row[c] - most);
    total += in.weight[static_cast<size_t>(r)] *
             (std::log(sum) + most - row[static_cast<int64_t>(in.labels[static_cast<size_t>(r)])]);
  }
  return total;
}

struct Shard {
  Values max, sum, target;
};

// The expected values of each of two ranks and of their sum; `columns` are cut at `cut`.
Shard stats(const Loss& in, int64_t begin, int64_t end) {
  Shard out;
  for (int64_t r = 0; r < in.rows; ++r) {
    const double* row = in.logits.data() + r * in.columns;
    double most = std::numeric_limits<double>::lowest();
    double sum = 0;
    for (int64_t c = begin; c < std::min(end, in.vocab); ++c) most = std::max(most, row[c]);
    for (int64_t c = begin; c < std::min(end, in.vocab); ++c) sum += std::exp(row[c] - most);
    const auto label = static_cast<int64_t>(in.labels[static_cast<size_t>(r)]);
    out.max.push_back(most);
    out.sum.push_back(sum);
    out.target.push_back(label >= begin && label < end ? row[label] : 0);
  }
  return out;
}

TEST(CrossEntropy, StatsLossAndGradient) {
  for (auto [rows, columns, vocab] :
       {std::array<int64_t, 3>{1, 1, 1}, {3, 17, 15}, {50, 256, 256}, {9, 5003, 5000}}) {
    const Loss in = loss_case(rows, columns, vocab);
    const Shard expected = stats(in, 0, columns);
    Values losses;
    Values gradient(in.logits.size());
    const double scale = 0.125;
    for (int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<size_t>(r);
      losses.push_back(std::log(expected.sum[i]) + expected.max[i] - expected.target[i]);
      for (int64_t c = 0; c < vocab; ++c) {
        const auto e = static_cast<size_t>(r * columns + c);
        gradient[e] =
            in.weight[i] * scale *
            (std::exp(in.logits[e] - expected.max[i]) / expected.sum[i] - (c == in.labels[i] ? 1 : 0));
      }
    }
    const int64_t n = rows;
    const Shape shape{rows, columns};
    const int64_t real = vocab;
    check_everywhere(
        {expected.max, expected.sum, expected.target, losses, gradient, gradient},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Host max(dtype, {n});
          const Host sum(dtype, {n});
          const Host target(dtype, {n});
          const Host loss(dtype, {n});
          const Host dlogits(dtype, shape, Values(in.logits.size(), NAN));
          const Host logits(dtype, shape, in.logits);
          const Host labels(DType::I32, {n}, in.labels);
          const Host weight(DType::F32, {n}, in.weight);
          ops.softmax_stats(stream, max, sum, target, logits, labels, 0, real);
          ops.cross_entropy(stream, loss, max, sum, target);
          ops.cross_entropy_backward(stream, dlogits, logits, max, sum, labels, weight, scale, 0, real);
          ops.cross_entropy_backward(stream, logits, logits, max, sum, labels, weight, scale, 0, real);
          return {max.values(),  sum.values(),     target.values(),
                  loss.values(), dlogits.values(), logits.values()};
        });
  }
}

TEST(CrossEntropy, BackwardIsTheDerivative) {
  const Loss in = loss_case(4, 9, 8);
  const Shard s = stats(in, 0, 9);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const DType f64 = DType::F64;
    const Host dlogits(f64, {4, 9});
    ops.cross_entropy_backward(stream, dlogits, Host(f64, {4, 9}, in.logits), Host(f64, {4}, s.max),
                               Host(f64, {4}, s.sum), Host(DType::I32, {4}, in.labels),
                               Host(DType::F32, {4}, in.weight), 1, 0, 8);
    check_gradient([&](const Values& v) { return weighted_loss(in, v); }, in.logits, dlogits.values());
  });
}

// Two ranks hold columns [0, cut) and [cut, columns); the second may hold nothing but padding.
void check_two_shards(const Loss& in, int64_t cut) {
  const Shard whole = stats(in, 0, in.columns);
  const auto part = [&](int64_t begin, int64_t end) {
    Values values;
    for (int64_t r = 0; r < in.rows; ++r)
      for (int64_t c = begin; c < end; ++c)
        values.push_back(in.logits[static_cast<size_t>(r * in.columns + c)]);
    return values;
  };
  const int64_t n = in.rows;
  check_everywhere(
      {whole.max, whole.sum, whole.target}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host labels(DType::I32, {n}, in.labels);
        const Host max_a(dtype, {n}), sum_a(dtype, {n}), target_a(dtype, {n});
        const Host max_b(dtype, {n}), sum_b(dtype, {n}), target_b(dtype, {n});
        ops.softmax_stats(stream, max_a, sum_a, target_a, Host(dtype, {n, cut}, part(0, cut)), labels, 0,
                          in.vocab);
        ops.softmax_stats(stream, max_b, sum_b, target_b,
                          Host(dtype, {n, in.columns - cut}, part(cut, in.columns)), labels, cut, in.vocab);
        const Host max(dtype, {n}, max_a.values());
        ops.reduce(stream, max, max_b, Reduce::Max);
        ops.softmax_rescale(stream, sum_a, max_a, max);
        ops.softmax_rescale(stream, sum_b, max_b, max);
        ops.reduce(stream, sum_a, sum_b, Reduce::Sum);
        ops.reduce(stream, target_a, target_b, Reduce::Sum);
        return {max.values(), sum_a.values(), target_a.values()};
      });
}

TEST(CrossEntropy, TwoShardsRescaledAreTheWhole) {
  check_two_shards(loss_case(33, 100, 97), 50);
  check_two_shards(loss_case(33, 100, 50), 60);
}

TEST(CrossEntropy, ExponentialIsRightToTwoUnitsInTheLastPlace) {
  // Rescaling a sum of 1 from maximum x to maximum 0 is exp(x).
  Values x{-1e38, -1e4, -104, -103.9, -103, -88, -87.4, -87.3, 0, 1, 88, 88.7, 89.5, 1e4};
  for (double v = -90; v < 88.5; v += 0.0137) x.push_back(v);
  const auto n = static_cast<int64_t>(x.size());
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host local(DType::F32, {n}, x);
    const Host sum(DType::F32, {n}, Values(x.size(), 1.0));
    ops.softmax_rescale(stream, sum, local, Host(DType::F32, {n}));
    const Values got = sum.values();
    const Values rounded = local.values();
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(rounded[i]);
      if (expected > static_cast<double>(std::numeric_limits<float>::max()))
        EXPECT_EQ(got[i], INFINITY) << x[i];
      else
        EXPECT_NEAR(got[i], expected, 2.4e-7 * expected + 1.5e-45) << x[i];
    }
    EXPECT_EQ(got[0], 0);
    EXPECT_EQ(got[1], 0);
  });
}

TEST(CrossEntropy, NotANumberReachesTheLoss) {
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64}) {
      Values logits = random_values(80, 3);
      logits[30] = NAN;
      const Host max(dtype, {2}), sum(dtype, {2}), target(dtype, {2}), loss(dtype, {2});
      ops.softmax_stats(stream, max, sum, target, Host(dtype, {2, 40}, logits), Host(DType::I32, {2}, {1, 2}),
                        0, 40);
      ops.cross_entropy(stream, loss, max, sum, target);
      EXPECT_TRUE(std::isnan(loss.values()[0]));
      EXPECT_TRUE(std::isfinite(loss.values()[1]));
    }
  });
}

}  // namespace
}  // namespace trifold::ops_test
