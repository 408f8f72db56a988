// Ids are checked against the rows of their tables, whatever the placement and the batch.
#include "embedding/id_exchange.h"

#include <gtest/gtest.h>

#include "support/ranks.h"

namespace trifold {
namespace {

// The messages of distributing, on each of two ranks, a batch of 3 samples in which sample 1 has `id` in the
// second table.
std::vector<std::string> distributed(PlacementKind kind, int32_t id, bool sort) {
  const LookupOptions how{3, false, false, DType::F32};
  const TablePlacement where{kind, 0, 2};
  const Placement placement({{"a", 4, 2, 1}, {"b", 5, 2, 2}}, {where, where}, 2);
  std::vector<std::string> messages(2);
  test::run_ranks(2, [&](Communicator& comm) {
    ThreadPool pool(1);
    Stream stream(Stream::Mode::Inline, pool);
    IdExchange exchange(placement, comm, cpu_ops(), how);
    const auto batch = exchange.make_batch();
    // The source's tables are larger, as those of other clicks may be.
    ClickBatchBuffer clicks(ClickSchema{0, {{"a", 100, 1}, {"b", 100, 2}}, "none", false}, 3);
    clicks.fill(40, 3, 2, [&](ClickPart& part) {
      for (int64_t i = 0; i < 2; ++i) {
        *part.bag(0, i, 1) = 3;
        int32_t* bag = part.bag(1, i, 2);
        bag[0] = 4;
        bag[1] = i == 1 ? id : 0;
      }
    });
    try {
      exchange.distribute(clicks.batch(), *batch, stream);
      batch->finish(sort, stream);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      messages[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  return messages;
}

TEST(IdExchange, RefusesIdsOutsideTheirTable) {
  const auto on_both = [](const std::string& message) { return std::vector<std::string>(2, message); };
  for (const PlacementKind kind :
       {PlacementKind::Table, PlacementKind::Row, PlacementKind::Column, PlacementKind::Replicated})
    for (const bool sort : {false, true}) {
      EXPECT_EQ(distributed(kind, 4, sort), on_both(""));
      for (const int32_t id : {5, -1})
        EXPECT_EQ(
            distributed(kind, id, sort),
            on_both(fmt::format(
                "table b: id {} of sample 41 of the epoch is outside the table, which has 5 rows", id)));
    }
}

// A large batch of three tables on one rank, by a pool of `workers`: its lookups, or the message. `bad` ids are outside
// the first two tables, one in each.
std::string lookups_by(int workers, bool bad) {
  constexpr int64_t kSamples = 40'000;
  constexpr int64_t kRows = 1000;
  const Placement placement({{"a", kRows, 2, 1}, {"b", kRows, 2, 2}, {"c", kRows, 2, 1}},
                            std::vector<TablePlacement>(3), 1);
  ClickBatchBuffer clicks(ClickSchema{0, {{"a", 9999, 1}, {"b", 9999, 2}, {"c", 9999, 1}}, "none", true},
                          kSamples);
  clicks.fill(0, kSamples, kSamples, [&](ClickPart& part) {
    for (int64_t i = 0; i < kSamples; ++i)
      for (int t = 0; t < 3; ++t) {
        const int count = t == 1 ? static_cast<int>(i % 3) : 1;
        int32_t* bag = part.bag(t, i, count);
        for (int k = 0; k < count; ++k) bag[k] = static_cast<int32_t>((i * 7 + t + k) % kRows);
        std::fill_n(part.bag_weights(t, count), count, static_cast<float>(i % 5));
        if (bad && ((t == 0 && i == 39'999) || (t == 1 && i == 1))) bag[0] = 5000 + t;
      }
  });
  ThreadPool pool(workers);
  Stream stream(Stream::Mode::Inline, pool);
  std::string text;
  test::run_ranks(1, [&](Communicator& comm) {
    IdExchange exchange(placement, comm, cpu_ops(), {kSamples, true, true, DType::F32});
    const auto batch = exchange.make_batch();
    try {
      exchange.distribute(clicks.batch(), *batch, stream);
    } catch (const Error& error) {
      text = error.what();
      return;
    }
    for (const BagLookup& lookup : batch->lookups)
      for (const Tensor& tensor : {lookup.offsets, lookup.ids, lookup.weights})
        text.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
  });
  return text;
}

TEST(IdExchange, ListsDoNotDependOnTheWorkersThatFillThem) {
  const std::string alone = lookups_by(1, false);
  EXPECT_GT(alone.size(), size_t{3 * 40'000 * 3 * 4});
  EXPECT_EQ(lookups_by(3, false), alone);
  for (const int workers : {1, 2, 3})
    EXPECT_EQ(lookups_by(workers, true),
              "table a: id 5000 of sample 39999 of the epoch is outside the table, which has 1000 rows");
}

}  // namespace
}  // namespace trifold
