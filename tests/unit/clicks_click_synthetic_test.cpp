#include "clicks/synthetic/click_synthetic.h"
#include "support/files.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;

SyntheticClickSpec small_spec() {
  SyntheticClickSpec spec;
  spec.dense = 5;
  spec.tables = {{"a", 100, 1}, {"b", 7, 1}, {"c", 1000, 4}, {"d", 3, 2}, {"e", 50, 1}};
  spec.samples = 100'000;
  spec.seed = 3;
  return spec;
}

// Pairs in the right order, ties half, by sorting.
double auc_of(const std::vector<double>& scores, const float* labels) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double ranked = 0, negatives = 0, positives = 0;
  for (size_t i = 0; i < order.size();) {
    double p = 0, n = 0;
    const double score = scores[order[i]];
    for (; i < order.size() && scores[order[i]] == score; ++i) (labels[order[i]] > 0 ? p : n) += 1;
    ranked += p * (negatives + n / 2);
    negatives += n;
    positives += p;
  }
  return ranked / (positives * negatives);
}

// A sample of the population: standard error of an AUC is about 0.5 / sqrt(positives).
void expect_optimum(const SyntheticClickSpec& spec) {
  const SyntheticClicks clicks(spec);
  ClickBatchBuffer buffer(clicks.schema(), spec.samples);
  clicks.read(0, spec.samples, buffer);
  const auto* labels = buffer.batch().labels.as<float>();
  const std::vector<double> scores = clicks.scores(0, spec.samples);
  const auto n = static_cast<double>(spec.samples);
  EXPECT_NEAR(std::accumulate(labels, labels + spec.samples, 0.0) / n, spec.positive_rate, 0.006);
  EXPECT_NEAR(auc_of(scores, labels), clicks.optimum().auc, 0.006);
  double loss = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    loss += std::log1p(std::exp(labels[i] > 0 ? -scores[i] : scores[i])) / n;
  EXPECT_NEAR(loss, clicks.optimum().log_loss, 0.006);
}

TEST(SyntheticClicks, TheBestAucIsThatOfThePlantedScores) {
  expect_optimum(small_spec());
  SyntheticClickSpec strong = small_spec();
  strong.zipf = 1;
  strong.positive_rate = 0.5;
  strong.pair_effect = 1.5;
  strong.missing = 0.3;
  strong.dense_effect = 0.6;
  expect_optimum(strong);
  strong.zipf = 0;
  strong.tables = {{"large", 3'000'000, 1}, {"small", 4, 1}, {"bag", 300'000, 3}};
  expect_optimum(strong);
}

TEST(SyntheticClicks, OneTableOfTwoRowsInClosedForm) {
  SyntheticClickSpec spec;
  spec.dense = 0;
  spec.tables = {{"coin", 2, 1}};
  spec.samples = 1000;
  spec.zipf = 0;
  spec.table_effect = 2;
  const SyntheticClicks clicks(spec);
  ClickBatchBuffer buffer(clicks.schema(), 1000);
  clicks.read(0, 1000, buffer);
  const std::vector<double> scores = clicks.scores(0, 1000);
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  const double p = 1 / (1 + std::exp(-*low)), q = 1 / (1 + std::exp(-*high));
  EXPECT_NEAR((p + q) / 2, 0.25, 1e-9);  // half of the samples each
  const double auc = (q * (1 - p) + (q * (1 - q) + p * (1 - p)) / 2) / ((p + q) * (2 - p - q));
  EXPECT_NEAR(clicks.optimum().auc, auc, 1e-9);
}

TEST(SyntheticClicks, IdsFollowTheZipfLaw) {
  SyntheticClickSpec spec = small_spec();
  spec.tables = {{"t", 50, 1}};
  spec.zipf = 1.2;
  const SyntheticClicks clicks(spec);
  ClickBatchBuffer buffer(clicks.schema(), spec.samples);
  clicks.read(0, spec.samples, buffer);
  std::vector<double> counts(50);
  for (int64_t i = 0; i < spec.samples; ++i)
    ++counts[static_cast<size_t>(buffer.batch().ids[0].as<int32_t>()[i])];
  std::sort(counts.rbegin(), counts.rend());
  const auto power = [&](double x) { return std::pow(x, -0.2); };
  for (int rank = 0; rank < 50; ++rank) {
    const double share = (power(rank + 1) - power(rank + 2)) / (1 - power(51));
    const double expected = share * static_cast<double>(spec.samples);
    EXPECT_NEAR(counts[static_cast<size_t>(rank)], expected, 6 * std::sqrt(expected) + 2) << rank;
  }
}

TEST(SyntheticClicks, ABatchIsAPureFunctionOfItsPositions) {
  SyntheticClickSpec spec = small_spec();
  spec.missing = 0.2;
  spec.weighted = true;
  const SyntheticClicks clicks(spec);
  ClickBatchBuffer whole(clicks.schema(), 64), part(clicks.schema(), 64);
  clicks.read(100, 64, whole);
  clicks.read(132, 8, part, 10);
  const ClickBatch& b = part.batch();
  EXPECT_EQ(b.samples, 10);
  EXPECT_EQ(b.real, 8);
  for (int t = 0; t < 5; ++t) {
    const auto* lengths = whole.batch().lengths[static_cast<size_t>(t)].as<int32_t>();
    const int64_t start = std::accumulate(lengths, lengths + 32, int64_t{0});
    const Tensor& ids = b.ids[static_cast<size_t>(t)];
    const auto* part_lengths = b.lengths[static_cast<size_t>(t)].as<int32_t>();
    EXPECT_TRUE(std::equal(part_lengths, part_lengths + 8, lengths + 32));
    EXPECT_EQ(part_lengths[8] + part_lengths[9], 0);
    EXPECT_EQ(std::accumulate(part_lengths, part_lengths + 8, int64_t{0}), ids.elements());
    for (int64_t i = 0; i < ids.elements(); ++i) {
      EXPECT_EQ(ids.as<int32_t>()[i], whole.batch().ids[static_cast<size_t>(t)].as<int32_t>()[start + i]);
      EXPECT_EQ(b.id_weights[static_cast<size_t>(t)].as<float>()[i],
                whole.batch().id_weights[static_cast<size_t>(t)].as<float>()[start + i]);
      EXPECT_LT(ids.as<int32_t>()[i], spec.tables[static_cast<size_t>(t)].rows);
    }
  }
  for (int64_t i = 0; i < 8 * 5; ++i)
    EXPECT_EQ(b.dense.as<float>()[i], whole.batch().dense.as<float>()[32 * 5 + i]);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(b.weights.as<float>()[i], i < 8 ? 1.0F : 0.0F);
}

TEST(SyntheticClicks, ConstantFeaturesTeachNothing) {
  SyntheticClickSpec spec = small_spec();
  spec.constant = true;
  const SyntheticClicks clicks(spec);
  EXPECT_NEAR(clicks.optimum().auc, 0.5, 1e-12);
  ClickBatchBuffer buffer(clicks.schema(), 100);
  clicks.read(0, 100, buffer);
  for (const Tensor& ids : buffer.batch().ids)
    for (int64_t i = 0; i < ids.elements(); ++i) EXPECT_EQ(ids.as<int32_t>()[i], 0);
}

TEST(SyntheticClicks, BadSpecs) {
  const auto with = [](auto change) {
    SyntheticClickSpec spec = small_spec();
    change(spec);
    return error_of([&] { SyntheticClicks{spec}; });
  };
  expect_has(with([](auto& s) { s.positive_rate = 1; }), "the fraction of positives is 1");
  expect_has(with([](auto& s) { s.tables[1].rows = 0; }), "table b has 0 rows");
  expect_has(with([](auto& s) { s.tables[1].name = "a"; }), "two tables are called a");
  expect_has(with([](auto& s) { s.missing = -1; }), "missing bags is -1");
}

}  // namespace
}  // namespace trifold
