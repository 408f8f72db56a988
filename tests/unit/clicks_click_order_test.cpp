// The order of training over stored clicks.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "clicks/click_source.h"
#include "clicks/synthetic/click_synthetic.h"
#include "data/permutation.h"
#include "support/files.h"

namespace trifold {
namespace {

std::vector<int64_t> epoch_of(const ClickOrder& order, int64_t epoch) {
  std::vector<int64_t> positions(static_cast<size_t>(order.samples()));
  order.positions(epoch, 0, positions);
  return positions;
}

TEST(Permutation, IsOneAndItsInverse) {
  for (const int64_t size : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    const Permutation permutation(philox_key(1, "p"), size);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = permutation(i);
      ASSERT_TRUE(0 <= value && value < size);
      EXPECT_FALSE(seen[static_cast<size_t>(value)]);
      seen[static_cast<size_t>(value)] = true;
      EXPECT_EQ(permutation.inverse(value), i);
    }
  }
}

// Over many keys every element comes to every place about equally often. Four rounds over so few elements are
// not perfect.
TEST(Permutation, IsNearlyUniform) {
  constexpr int kSize = 11, kTries = 22'000;
  std::vector<int> counts(kSize * kSize);
  for (uint64_t tweak = 0; tweak < kTries; ++tweak) {
    const Permutation permutation(philox_key(tweak, "p"), kSize);
    for (int i = 0; i < kSize; ++i) ++counts[static_cast<size_t>(i * kSize + permutation(i))];
  }
  for (const int count : counts) EXPECT_NEAR(count, kTries / kSize, 0.2 * kTries / kSize);
}

TEST(ClickOrder, EveryEpochHasEverySampleOnce) {
  for (const int64_t samples : {1, 9, 10, 11, 95, 100, 1003})
    for (const int64_t window : {1, 3, 1000}) {
      const ClickOrder order(samples, 42, 10, window);
      std::set<std::vector<int64_t>> orders;
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        std::vector<int64_t> positions = epoch_of(order, epoch);
        orders.insert(positions);
        std::sort(positions.begin(), positions.end());
        for (int64_t i = 0; i < samples; ++i) ASSERT_EQ(positions[static_cast<size_t>(i)], i);
      }
      EXPECT_EQ(orders.size(), samples >= 9 ? 4U : 1U) << "epochs must differ";
    }
}

TEST(ClickOrder, AnyPieceIsThatOfTheWhole) {
  const ClickOrder order(1003, 8, 10, 7);
  const std::vector<int64_t> whole = epoch_of(order, 2);
  for (int64_t first = 0; first < 1003; first += 37)
    for (int64_t count = 1; first + count <= 1003; count *= 3) {
      std::vector<int64_t> piece(static_cast<size_t>(count));
      order.positions(2, first, piece);
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first));
    }
}

// 7 blocks of 10 at a time: the samples of a window are in 7 blocks.
TEST(ClickOrder, AWindowReadsItsOwnBlocksOnly) {
  const ClickOrder order(1000, 8, 10, 7);
  const std::vector<int64_t> whole = epoch_of(order, 0);
  for (size_t begin = 0; begin < whole.size(); begin += 70) {
    std::set<int64_t> blocks;
    for (size_t i = begin; i < std::min<size_t>(begin + 70, 1000); ++i) blocks.insert(whole[i] / 10);
    EXPECT_EQ(blocks.size(), std::min<size_t>(70, 1000 - begin) / 10);
  }
}

TEST(ClickOrder, WithoutASeedItIsTheStoredOrder) {
  const std::vector<int64_t> positions = epoch_of(ClickOrder(50, std::nullopt), 3);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(positions[static_cast<size_t>(i)], i);
}

// Ranks of a global batch together read what one rank would, the partial last batch included.
TEST(ClickFeed, RanksShareTheLastBatch) {
  SyntheticClickSpec spec;
  spec.dense = 1;
  spec.tables = {{"t", 1'000'000, 1}};
  spec.samples = 50;
  const SyntheticClicks clicks(spec);
  const ClickFeed feed(clicks, 4, 16);
  EXPECT_EQ(feed.batches_per_epoch(), 4);
  EXPECT_EQ(feed.real_samples(7), 2);
  ClickBatchBuffer one(clicks.schema(), 16), mine(clicks.schema(), 4);
  feed.read(7, 0, 16, one);
  EXPECT_EQ(one.batch().real, 2);
  std::vector<int32_t> ids;
  int64_t real = 0;
  for (int rank = 0; rank < 4; ++rank) {
    feed.read(7, rank, 4, mine);
    const ClickBatch& b = mine.batch();
    EXPECT_EQ(b.samples, 4);
    real += b.real;
    ids.insert(ids.end(), b.ids[0].as<int32_t>(), b.ids[0].as<int32_t>() + b.ids[0].elements());
  }
  EXPECT_EQ(real, 2);
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), one.batch().ids[0].as<int32_t>()));
}

TEST(ClickFeed, CanDropTheLastBatch) {
  SyntheticClickSpec spec;
  spec.tables = {{"t", 1000, 1}};
  spec.samples = 50;
  const SyntheticClicks clicks(spec);
  const ClickFeed feed(clicks, 4, 16, true);
  EXPECT_EQ(feed.batches_per_epoch(), 3);
  EXPECT_EQ(feed.short_batch(), 2);
  for (const int64_t step : {0, 2, 3, 5}) EXPECT_EQ(feed.real_samples(step), 16);
  std::vector<int64_t> first, second;  // batches of another epoch
  feed.positions(0, first);
  feed.positions(3, second);
  EXPECT_NE(first, second);
  EXPECT_EQ(ClickFeed(clicks, 4, 25, true).batches_per_epoch(), 2);
  EXPECT_EQ(ClickFeed(clicks, 4, 25).short_batch(), 0);
  EXPECT_EQ(ClickFeed(clicks, 4, 51, true).batches_per_epoch(), 0);
}

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.data);
  return {data, data + tensor.bytes()};
}

// A batch has the same bytes however many threads fill it; bags are missing, short and full.
TEST(ClickFeed, ThreadsFillABatchTogether) {
  SyntheticClickSpec spec;
  spec.dense = 3;
  spec.tables = {{"a", 1000, 1}, {"b", 5000, 5}, {"c", 7, 2}};
  spec.samples = 5000;
  spec.missing = 0.3;
  spec.weighted = true;
  const SyntheticClicks clicks(spec);
  const ClickFeed feed(clicks, 4, 3000);
  ClickBatchBuffer alone(clicks.schema(), 3000);
  for (const int threads : {2, 3, 16}) {
    ThreadPool pool(threads);
    ClickBatchBuffer together(clicks.schema(), 3000, &pool);
    for (const int64_t step : {0, 1, 2}) {  // the second is partial
      feed.read(step, 0, 3000, alone);
      feed.read(step, 0, 3000, together);
      const ClickBatch &a = alone.batch(), &b = together.batch();
      EXPECT_EQ(a.real, b.real);
      EXPECT_EQ(bytes_of(a.dense), bytes_of(b.dense));
      EXPECT_EQ(bytes_of(a.labels), bytes_of(b.labels));
      EXPECT_EQ(bytes_of(a.weights), bytes_of(b.weights));
      for (size_t t = 0; t < a.ids.size(); ++t) {
        EXPECT_EQ(bytes_of(a.lengths[t]), bytes_of(b.lengths[t]));
        EXPECT_EQ(bytes_of(a.ids[t]), bytes_of(b.ids[t]));
        EXPECT_EQ(bytes_of(a.id_weights[t]), bytes_of(b.id_weights[t]));
      }
    }
  }
}

// Which worker fails first depends on timing; which error is reported does not.
TEST(ClickBatchBuffer, ReportsTheErrorOfTheFirstPart) {
  ThreadPool pool(4);
  ClickBatchBuffer buffer({1, {{"t", 10, 1}}, "none", false}, 4000, &pool);
  for (int again = 0; again < 20; ++again) try {
      buffer.fill(0, 4000, 4000, [](ClickPart& part) {
        if (part.first() > 0) bad_input("sample {} is bad", part.first());
      });
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "sample 1000 is bad");
    }
}

TEST(ClickSlice, ShiftsPositions) {
  SyntheticClickSpec spec;
  spec.tables = {{"t", 1'000'000, 1}};
  spec.samples = 50;
  const SyntheticClicks clicks(spec);
  const ClickSlice slice(clicks, 20, 45);
  EXPECT_EQ(slice.samples(), 25);
  ClickBatchBuffer a(clicks.schema(), 5), b(clicks.schema(), 5);
  slice.read(3, 5, a);
  clicks.read(23, 5, b);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(a.batch().ids[0].as<int32_t>()[i], b.batch().ids[0].as<int32_t>()[i]);
  EXPECT_THROW(slice.read(21, 5, a), Error);
}

}  // namespace
}  // namespace trifold
