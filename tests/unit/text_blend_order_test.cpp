// Orders of blends whose shares change.
#include "text/blend/blend_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data/read_ahead.h"
#include "support/files.h"
#include "text/blend/data_schedule.h"
#include "unit/text_corpus_testing.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;

BlendShares three_points(BlendShares::Between between) {
  return {{{0, {0.8, 0.2, 0.0}}, {3000, {0.1, 0.3, 0.6}}, {7000, {0.5, 0.5, 0.0}}}, between};
}

// Shares of every sample, written from the definition.
std::vector<double> shares_of(BlendShares::Between between, int64_t sample) {
  const double line = between == BlendShares::Between::Lines ? 1 : 0;
  const auto mix = [&](std::vector<double> a, const std::vector<double>& b, double part) {
    for (size_t k = 0; k < a.size(); ++k) a[k] += line * part * (b[k] - a[k]);
    return a;
  };
  const auto at = static_cast<double>(sample);
  if (sample < 3000) return mix({0.8, 0.2, 0.0}, {0.1, 0.3, 0.6}, at / 3000);
  if (sample < 7000) return mix({0.1, 0.3, 0.6}, {0.5, 0.5, 0.0}, (at - 3000) / 4000);
  return {0.5, 0.5, 0.0};
}

constexpr BlendShares::Between kBoth[] = {BlendShares::Between::Steps, BlendShares::Between::Lines};

TEST(BlendShares, AreSums) {
  for (const auto between : kBoth) {
    const BlendShares shares = three_points(between);
    std::vector<double> sums(3, 0.0);
    for (int64_t i = 0; i < 9000; ++i) {
      for (size_t k = 0; k < 3; ++k) {
        ASSERT_NEAR(shares.due(k, i), sums[k], 1e-8) << i;
        sums[k] += shares_of(between, i)[k];
      }
    }
  }
}

TEST(BlendOrder, ReadsEverySourceInOrderAndKeepsToItsShare) {
  for (const auto between : kBoth) {
    const BlendOrder order(three_points(between), 9000, {}, true);
    std::vector<int64_t> taken(3, 0), counted(3);
    std::vector<double> due(3, 0.0);
    for (int64_t i = 0; i < order.samples(); ++i) {
      if (i % 97 == 0) order.count(i, counted);
      ASSERT_TRUE(i % 97 != 0 || counted == taken) << i;
      const BlendOrder::Place place = order.at(i);
      ASSERT_EQ(place.sample, taken[place.dataset]) << "sample " << i << " repeats or leaves out";
      ++taken[place.dataset];
      for (size_t k = 0; k < 3; ++k) {
        due[k] += shares_of(between, i)[k];
        ASSERT_LT(std::abs(due[k] - static_cast<double>(taken[k])), 1.6)
            << "sample " << i << ", source " << k;
      }
      ASSERT_TRUE(place.dataset != 2 || i == 2999 || shares_of(between, i)[2] > 0) << i;
    }
    EXPECT_EQ(order.taken(1, order.samples()), taken[1]);
  }
}

TEST(BlendOrder, WithOnePointIsTheBlendByWeight) {
  const std::vector<double> weights{0.5, 0.2, 0.3};
  const BlendOrder by_weight = blend_by_weight(weights, 5000);
  const BlendOrder scheduled(BlendShares({{0, weights}}, BlendShares::Between::Steps), 5000, {}, true);
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(by_weight.at(i), scheduled.at(i)) << i;
}

TEST(BlendOrder, DoesNotDependOnTheLengthOfTheRun) {
  const BlendOrder whole(three_points(BlendShares::Between::Lines), 9000, {}, true);
  const BlendOrder part(three_points(BlendShares::Between::Lines), 2500, {}, true);
  for (int64_t i = 0; i < 2500; ++i) ASSERT_EQ(whole.at(i), part.at(i)) << i;
}

const std::vector<std::string> kTwoPaths{"data/web.jsonl.gz", "data/code"};

TEST(DataSchedule, NamesPathsAndCountsTokens) {
  const DataSchedule schedule(R"({"0": {"web": 8, "code": 2}, "1e3": {"data/code": 5}, "between": "lines"})",
                              kTwoPaths);
  const BlendShares shares = schedule.shares(64);  // the second point is at sample 16
  EXPECT_DOUBLE_EQ(shares.due(0, 1), 0.8);
  EXPECT_NEAR(shares.due(0, 16), 0.8 * 16 - 0.8 / 16 * 120, 1e-12);
  EXPECT_EQ(shares.due(0, 100), shares.due(0, 16));
  EXPECT_EQ(schedule.last(), (std::vector<double>{0, 1}));
  EXPECT_EQ(schedule.names()[0], "web");
}

TEST(DataSchedule, RefusesMistakes) {
  const auto error = [](const std::string& text) {
    return error_of([&] { DataSchedule schedule(text, kTwoPaths); });
  };
  expect_has(error(R"({"5": {"web": 1}})"), "the weights at the beginning are missing");
  expect_has(error(R"({"0": {"wiki": 1}})"),
             "no path of --data-path is called 'wiki'; they are data/web.jsonl.gz");
  expect_has(error(R"({"0": {"web": 1}})"), "data/code of --data-path never has a weight");
  expect_has(error(R"({"0": {"web": 0, "code": 0}})"), "no path has a weight above 0");
  expect_has(error(R"({"0": {"web": 1e308, "code": 1e308}})"), "a sum beyond the largest number");
  expect_has(error(R"({"0": {"web": -1, "code": 2}})"), "a weight of at least 0 is needed");
  expect_has(error(R"({"0": {"web": 1, "code": 2}, "soon": {}})"), "'soon' is no number of tokens");
  expect_has(error(R"({"1e2": {"web": 1}, "100": {"code": 1}, "0": {"web": 1}})"),
             "two members give the weights");
  expect_has(error(R"({"0": {"web": 8, "web.jsonl.gz": 2, "code": 1}})"),
             "data/web.jsonl.gz has two weights");
  expect_has(error(R"({"0": {"web": 1, "code": 2}, "between": "curves"})"),
             "\"steps\" or \"lines\" is needed");
}

// Bytes of a text of one letter, as a file of this kind: plain, JSON lines (streamed), or tokens.
std::string one_letter_file(const test::TempDir& folder, const std::string& kind, char letter) {
  const std::string name = folder.file(std::string(1, letter) + kind), text(600, letter);
  if (kind == ".txt") test::write_file(name, text);
  if (kind == ".jsonl")
    for (int line = 0; line < 40; ++line)
      std::ofstream(name, std::ios::app) << "{\"text\": \"" << text << "\"}\n";
  if (kind.empty()) test::write_documents(name, TokenType::U16, {std::vector<int32_t>(600, letter)});
  return name;
}

// The number of samples from the first path among [begin, end), of which all tokens must be of one path.
int64_t samples_of_a(const DataSource& source, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t i = begin; i < end; ++i) {
    const std::vector<int32_t> text = test::sample_text(source, i);
    EXPECT_EQ(std::count(text.begin(), text.end(), text[0]), std::ssize(text)) << i;
    count += text[0] == 'a' ? 1 : 0;
  }
  return count;
}

TEST(DataSchedule, BlendsPathsOfEveryKind) {
  for (const std::string kind : {".txt", ".jsonl", ""}) {
    SCOPED_TRACE(kind);
    const test::TempDir folder;
    DataConfig config =
        test::config_of({one_letter_file(folder, kind, 'a'), one_letter_file(folder, kind, 'b')});
    config.data_schedule = R"({"0": {"a": 3, "b": 1}, "320": {"b": 1}, "640": {"a": 1, "b": 1}})";
    const Corpus corpus(config, 256);
    EXPECT_TRUE(corpus.weighted());
    const auto source = corpus.source(Split::Train, 8, 200, 1);  // points at samples 40 and 80
    EXPECT_EQ(samples_of_a(*source, 0, 40), 30);
    EXPECT_LE(samples_of_a(*source, 40, 80), 1);
    EXPECT_NEAR(static_cast<double>(samples_of_a(*source, 80, 200)), 60, 1);
    EXPECT_EQ(source->sources(), (std::vector<std::string>{"a", "b"}));
    std::vector<int64_t> counts(2);
    source->count_sources(40, counts);
    EXPECT_EQ(counts, (std::vector<int64_t>{30, 10}));
  }
}

TEST(DataSchedule, NeedsSeveralPathsWithoutWeights) {
  const test::TempDir folder;
  const std::string a = one_letter_file(folder, ".txt", 'a'), b = one_letter_file(folder, ".txt", 'b');
  const auto error = [](std::vector<std::string> paths) {
    DataConfig config = test::config_of(std::move(paths));
    config.data_schedule = R"({"0": {"a": 1, "b": 1}})";
    return error_of([&] { Corpus corpus(config, 256); });
  };
  expect_has(error({a}), "has no effect on");
  expect_has(error({"1", a, "1", b}), "leave out the weights of --data-path");
}

}  // namespace
}  // namespace trifold
