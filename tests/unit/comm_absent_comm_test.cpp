#include "comm/absent_comm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/clock.h"
#include "support/compare.h"

namespace trifold::test {
namespace {

struct OneRank {
  explicit OneRank(int rank = 3, int size = 8, const AbsentWorldOptions& options = {})
      : world(absent_world(rank, size, options)), pool(1), stream(Stream::Mode::Inline, pool) {}
  std::unique_ptr<Communicator> world;
  ThreadPool pool;
  Stream stream;
};

Tensor of(std::vector<float>& values) {
  return {values.data(), DType::F32, {static_cast<int64_t>(values.size())}};
}
Tensor of(std::vector<double>& values) {
  return {values.data(), DType::F64, {static_cast<int64_t>(values.size())}};
}
Tensor of(std::vector<int64_t>& values) {
  return {values.data(), DType::I64, {static_cast<int64_t>(values.size())}};
}

bool finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

double size_of_values(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(AbsentComm, AgreesWithWhatThisRankSays) {
  OneRank one;
  std::vector<double> sums{1, 0};
  one.world->all_reduce(of(sums), Reduce::Sum, one.stream);
  EXPECT_EQ(sums, (std::vector<double>{8, 0}));
  std::vector<double> most{5};
  one.world->all_reduce(of(most), Reduce::Max, one.stream);
  EXPECT_EQ(most, std::vector<double>{5});
  std::vector<int64_t> all(8), mine{7};
  one.world->all_gather(of(all), of(mine), one.stream);
  EXPECT_EQ(all, std::vector<int64_t>(8, 7));
  one.world->all_reduce(of(mine), Reduce::Sum, one.stream);
  EXPECT_EQ(mine, std::vector<int64_t>{56});
  one.world->broadcast(of(mine), 0, one.stream);
  EXPECT_EQ(mine, std::vector<int64_t>{56});
  one.world->barrier();
}

TEST(AbsentComm, SumsFloatsToTheScaleOfIndependentParts) {
  OneRank one;
  std::vector<float> x(64, 2.0F);
  one.world->all_reduce(of(x), Reduce::Sum, one.stream);
  EXPECT_FLOAT_EQ(x[0], 2 * std::sqrt(8.0F));
  std::vector<float> in(16), out(2);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  one.world->reduce_scatter(of(out), of(in), Reduce::Sum, one.stream);
  EXPECT_FLOAT_EQ(out[0], 6 * std::sqrt(8.0F));
  EXPECT_FLOAT_EQ(out[1], 7 * std::sqrt(8.0F));
}

TEST(AbsentComm, GathersPartsLikeItsOwn) {
  OneRank one;
  std::vector<float> own(100), all(800, std::nanf(""));
  for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<float>(i + 1);
  one.world->all_gather(of(all), of(own), one.stream);
  for (int64_t rank = 0; rank < 8; ++rank) {
    const std::vector<float> part(all.begin() + rank * 100, all.begin() + (rank + 1) * 100);
    EXPECT_EQ(part, own) << "the part of rank " << rank;
  }
}

TEST(AbsentComm, ReceivesRowsInTheAnnouncedNumbers) {
  OneRank one(1, 3);
  std::vector<float> in{1, 2, 3, 4}, out(5, -1);
  const int64_t sent[] = {1, 2, 1}, received[] = {3, 2, 0};
  one.world->all_to_all(of(out), of(in), received, sent, one.stream);
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 2, 3}));
  const int64_t wrong[] = {3, 3, 0};
  EXPECT_THROW(one.world->all_to_all(of(out), of(in), wrong, sent, one.stream), Error);
}

TEST(AbsentComm, DrawsMessagesAgainAlikeInEveryRun) {
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    OneRank one;
    for (int call = 0; call < 2; ++call) {
      std::vector<float> x(1000, std::nanf(""));
      const Transfer receive{Transfer::Direction::Receive, 2, of(x)};
      one.world->exchange({&receive, 1}, one.stream);
      EXPECT_TRUE(finite(x));
      EXPECT_NEAR(size_of_values(x), 1, 0.2);
      runs.push_back(std::move(x));
    }
  }
  EXPECT_EQ(runs[0], runs[2]);
  EXPECT_EQ(runs[1], runs[3]);
  EXPECT_NE(runs[0], runs[1]);
}

TEST(AbsentComm, DrawsSmallGradients) {
  OneRank one;
  const std::unique_ptr<Communicator> gradients = one.world->duplicate(kGradientsGroup);
  std::vector<float> x(1000);
  const Transfer receive{Transfer::Direction::Receive, 2, of(x)};
  gradients->exchange({&receive, 1}, one.stream);
  EXPECT_LT(size_of_values(x), 1e-3);
  EXPECT_GT(size_of_values(x), 1e-5);
}

TEST(AbsentComm, SplitsByKnownPlaces) {
  OneRank one(5, 8);
  EXPECT_THROW(one.world->split(0, 0), Error);
  const std::unique_ptr<Communicator> odd = one.world->split_by(
      [](int rank) {
        return SplitPlace{rank % 2, -rank};
      },
      0);
  EXPECT_EQ(odd->size(), 4);
  EXPECT_EQ(odd->rank(), 1);
}

class Prices final : public AbsentPeers {
 public:
  double seconds(const Work& call) const override { return 1e-3 * call.ranks; }
  bool sum(unsigned /*group*/, int /*ranks*/, Tensor numbers) const override {
    numbers.as<double>()[0] = 100;
    return true;
  }
};

TEST(AbsentComm, CountsAndPricesCallsAndWaits) {
  const Prices prices;
  AbsentCallCounts counts;
  OneRank one(0, 8, {.peers = &prices, .counts = &counts, .waits = true});
  std::vector<float> x(80);
  const auto start = Clock::now();
  one.world->all_reduce(of(x), Reduce::Sum, one.stream);
  one.world->all_reduce(of(x).flat(0, 40), Reduce::Sum, one.stream);
  EXPECT_GE(seconds_since(start), 16e-3);
  ASSERT_EQ(counts.list().size(), 1U);
  const AbsentCalls calls = counts.list()[0];
  EXPECT_EQ(calls.name, "all_reduce");
  EXPECT_EQ(calls.count, 2);
  EXPECT_EQ(calls.bytes, 2 * 320 * 7 / 8);
  EXPECT_EQ(calls.all_bytes, 2 * 480 * 7 / 8);
  EXPECT_NEAR(calls.seconds, 16e-3, 1e-9);
  EXPECT_EQ(one.world->bytes_sent(), calls.all_bytes);
  std::vector<double> sum{1};
  one.world->all_reduce(of(sum), Reduce::Sum, one.stream);
  EXPECT_EQ(sum[0], 100);
}

TEST(AbsentComm, FailsOnceItIsAborted) {
  OneRank one;
  std::vector<float> x(8);
  one.world->abort("a test");
  EXPECT_THROW(one.world->all_reduce(of(x), Reduce::Sum, one.stream), Error);
}

}  // namespace
}  // namespace trifold::test
