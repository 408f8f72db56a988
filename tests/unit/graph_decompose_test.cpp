// Values of operations that are compositions of others, against their definitions. Their gradients are compared with
// differences (graph_differences_test.cpp).
#include <gtest/gtest.h>

#include <cmath>

#include "graph_lowered_run.h"

namespace trifold::graph::lowering {
namespace {

// The loss y of a graph that reads the parameter x and the array t, both [b, 3], for one sample.
double loss_of(const std::string& lines) {
  SmallModel model(
      "x: parameter [1, 3] = 0.2 -1.5 0.9\n"
      "t: data [b, 3] = 0.7 0.1 0.2\n"
      "h [b, 3] = expand x [b, 3]\n" +
      lines + "loss y\n");
  return LoweredRun(model, 1, false).loss();
}

constexpr double kX[] = {0.2, -1.5, 0.9}, kT[] = {0.7, 0.1, 0.2};

// The sum of f(x, t).
template <class F>
double sum_of(F f) {
  double sum = 0;
  for (int i = 0; i < 3; ++i) sum += f(kX[i], kT[i]);
  return sum;
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// The logarithms of the probabilities of the classes x.
double log_probability(int i) {
  return kX[i] - std::log(std::exp(kX[0]) + std::exp(kX[1]) + std::exp(kX[2]));
}

TEST(GraphDecompose, LossesOfDistances) {
  EXPECT_NEAR(loss_of("y [] = l1_loss h t\n"), sum_of([](double x, double t) { return std::abs(x - t); }) / 3,
              1e-12);
  const auto huber = [](double x, double t) {
    const double d = std::abs(x - t);
    return d < 0.6 ? d * d / 2 : 0.6 * (d - 0.3);
  };
  EXPECT_NEAR(loss_of("y [] = huber_loss h t 2 0.6\n"), sum_of(huber), 1e-12);
  EXPECT_NEAR(loss_of("y [] = smooth_l1_loss h t 2 0.6\n"), sum_of(huber) / 0.6, 1e-12);
  EXPECT_NEAR(loss_of("y [] = mse_loss h t 2\n"),
              sum_of([](double x, double t) { return (x - t) * (x - t); }), 1e-12);
}

TEST(GraphDecompose, LossesOfProbabilities) {
  EXPECT_NEAR(loss_of("y [] = kl_div h t 2\n"),
              sum_of([](double x, double t) { return t * (std::log(t) - x); }), 1e-12);
  EXPECT_NEAR(loss_of("y [] = kl_div h t 2 true\n"),
              sum_of([](double x, double t) { return std::exp(t) * (t - x); }), 1e-12);
  const auto entropy = [](double x, double t) {
    return -t * std::log(sigmoid(x)) - (1 - t) * std::log(1 - sigmoid(x));
  };
  EXPECT_NEAR(loss_of("p [b, 3] = sigmoid h\ny [] = binary_cross_entropy p t\n"), sum_of(entropy) / 3, 1e-12);
  EXPECT_NEAR(loss_of("y [] = binary_cross_entropy_with_logits h t\n"), sum_of(entropy) / 3, 1e-12);
  // A target of 0 has no part in the divergence.
  EXPECT_NEAR(loss_of("o: data [b, 3] = 0 1 0\ny [] = kl_div h o 2\n"), 1.5, 1e-12);
}

// The sum of the losses of a batch by the number of its samples is a mean: it does not depend on how many there are.
TEST(GraphDecompose, NumbersOfSamples) {
  for (const int64_t batch : {1, 3}) {
    SmallModel model(
        "x: parameter [1, 3] = 0.2 -1.5 0.9\n"
        "h [b, 3] = expand x [b, 3]\n"
        "s [] = sum h\n"
        "m [] = div.Tensor s b\n"
        "k [] = mul.Scalar m 2b\n"
        "d [] = sub.Tensor k b\n"
        "r [] = rsub.Scalar d 3b\n"
        "y [] = div.Scalar r b\n"
        "loss y\n");
    LoweredRun run(model, batch, false);
    // y = (3 b - (2 b s / b - b)) / b = 4 - 2 sum(x) ; a loss without a number counts with its samples
    EXPECT_NEAR(run.loss(), static_cast<double>(batch) * (4 - 2 * -0.4), 1e-12);
  }
}

// The gradient with respect to x, as that of one sample in which h is x.
std::vector<double> gradient_at(const std::string& x, const std::string& t, const std::string& lines) {
  SmallModel model("x: parameter [1, 3] = " + x + "\nt: data [b, 3] = " + t +
                   "\nh [b, 3] = expand x [b, 3]\n" + lines + "loss y\n");
  LoweredRun run(model, 1, false);
  std::vector<double> gradient = run.gradients(Backward::Joint).parameters.at("x");
  for (double& each : gradient) each /= kLossScale;
  return gradient;
}

// Where formulas that are equal have other derivatives: an untrained last layer gives logits of 0.
TEST(GraphDecompose, EntropyOfLogitsOfZero) {
  for (const std::string_view lines :
       {"y [] = binary_cross_entropy_with_logits h t - - 2\n",
        "p: data [3] = 1 1 1\ny [] = binary_cross_entropy_with_logits h t - p 2\n"}) {
    const std::vector<double> gradient = gradient_at("0 0 0", "0 1 0.25", std::string(lines));
    EXPECT_NEAR(gradient[0], 0.5, 1e-12);
    EXPECT_NEAR(gradient[1], -0.5, 1e-12);
    EXPECT_NEAR(gradient[2], 0.25, 1e-12);
  }
}

TEST(GraphDecompose, EntropyOfProbabilitiesThatAreCertain) {
  const std::vector<double> gradient =
      gradient_at("50 -800 0", "0 1 0", "p [b, 3] = sigmoid h\ny [] = binary_cross_entropy p t - 2\n");
  EXPECT_EQ(gradient[0], 0);
  EXPECT_EQ(gradient[1], 0);
  EXPECT_NEAR(gradient[2], 0.5, 1e-12);
}

TEST(GraphDecompose, CrossEntropyOfSmoothedLabels) {
  const double all = log_probability(0) + log_probability(1) + log_probability(2);
  const std::string labels = "l: data i64 [b] = 2\n";
  EXPECT_NEAR(loss_of(labels + "y [] = cross_entropy_loss h l - 1 -100 0.3\n"),
              -0.7 * log_probability(2) - 0.1 * all, 1e-12);
  double mixed = 0;
  for (int i = 0; i < 3; ++i) mixed -= kT[i] * log_probability(i);
  EXPECT_NEAR(loss_of("y [] = cross_entropy_loss h t\n"), mixed, 1e-12);
  EXPECT_NEAR(loss_of("y [] = cross_entropy_loss h t - 2 -100 0.3\n"), 0.7 * mixed - 0.1 * all, 1e-12);
}

// Elements in their order, by a weight for each.
TEST(GraphDecompose, Repetitions) {
  const std::string weighted =
      "k: data [6b] = 1 10 100 1000 10000 100000\nf [6b] = reshape r [6b]\n"
      "m [6b] = mul.Tensor f k\ny [] = sum m\n";
  EXPECT_NEAR(loss_of("r [b, 6] = repeat h [1, 2]\n" + weighted), 1001 * (0.2 - 15 + 90), 1e-9);
  EXPECT_NEAR(loss_of("r [2b, 3] = repeat h [2, 1]\n" + weighted), 1001 * (0.2 - 15 + 90), 1e-9);
  EXPECT_NEAR(loss_of("r [2, b, 3] = repeat h [2, 1, 1]\n" + weighted), 1001 * (0.2 - 15 + 90), 1e-9);
  EXPECT_NEAR(loss_of("r [b, 6] = repeat_interleave.self_int h 2 1\n" + weighted), 11 * (0.2 - 150 + 9000),
              1e-8);
  EXPECT_NEAR(loss_of("r [6] = repeat_interleave.self_int x 2\nk: data [6] = 1 10 100 1000 10000 100000\n"
                      "m [6] = mul.Tensor r k\ny [] = sum m\n"),
              11 * (0.2 - 150 + 9000), 1e-8);
}

TEST(GraphDecompose, ProductsInAFactorOfASum) {
  const std::string factors = "a [b, 1, 3] = unsqueeze h 1\nc [b, 3, 1] = unsqueeze t 2\n";
  const double product = sum_of([](double x, double t) { return x * t; });
  EXPECT_NEAR(loss_of(factors + "s: data [1] = 4\nz [b, 1, 1] = baddbmm s a c 0.5 3\ny [] = sum z\n"),
              2 + 3 * product, 1e-12);
}

// What the host computes is decomposed in the same way.
TEST(GraphDecompose, OfData) {
  EXPECT_NEAR(
      loss_of("u [b, 1, 3] = unsqueeze t 1\ns [b, 3] = squeeze.dims u [1]\nq [b, 6] = "
              "repeat_interleave.self_int s 2 1\nf [b, 3] = slice.Tensor q 1 0 6 2\ny [] = l1_loss h f\n"),
      sum_of([](double x, double t) { return std::abs(x - t); }) / 3, 1e-12);
}

}  // namespace
}  // namespace trifold::graph::lowering
