// The planner's placement of tables: memory, balance and traffic.
#include "embedding/planner.h"

#include <gtest/gtest.h>

namespace trifold::test {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

std::vector<EmbeddingTable> equal_tables(int count, int64_t rows, int64_t width) {
  std::vector<EmbeddingTable> tables;
  for (int t = 0; t < count; ++t) tables.push_back({fmt::format("T{}", t), rows, width, 1});
  return tables;
}

std::vector<RankLoad> loads(const std::vector<EmbeddingTable>& tables, const PlacementInput& input) {
  return loads_of(Placement(tables, plan_placement(tables, input), input.ranks), input);
}

// b F D s (N - 1) / N each way, for F tables over N ranks.
TEST(EmbeddingPlanner, WholeTablesSendTheBytesOfTheFormula) {
  PlacementInput input{.ranks = 8, .global_batch = 65'536};
  for (const int bytes : {4, 2}) {
    input.travel_bytes = bytes;
    const double b = 8192, tables = 24, width = 128;
    for (const RankLoad& load : loads(equal_tables(24, 1'000'000, 128), input)) {
      EXPECT_EQ(load.tables, 3);
      EXPECT_DOUBLE_EQ(load.vectors_out, b * tables * width * bytes * 7 / 8);
      EXPECT_DOUBLE_EQ(load.vectors_back, b * tables * width * bytes * 7 / 8);
      EXPECT_DOUBLE_EQ(load.ids_out, b * 21 * (4 + 4) + 8 * 7);
      EXPECT_EQ(load.copies_out, 0);
    }
  }
}

TEST(EmbeddingPlanner, RowsCostEveryRankTheWholeBatch) {
  const auto tables = equal_tables(1, 1000, 16);
  const PlacementInput input{.ranks = 4, .global_batch = 400};
  const Placement placement(tables, {{PlacementKind::Row, 0, 4}}, 4);
  for (const RankLoad& load : loads_of(placement, input)) {
    EXPECT_DOUBLE_EQ(load.vectors_out, 3 * 100 * 16 * 4.0);
    EXPECT_DOUBLE_EQ(load.vectors_back, 3 * 100 * 16 * 4.0);
    EXPECT_EQ(load.bytes, 250 * 16 * 4);
  }
}

TEST(EmbeddingPlanner, OneRankSendsNothing) {
  for (const RankLoad& load : loads(equal_tables(3, 10, 4), {.ranks = 1, .global_batch = 100}))
    EXPECT_EQ(load.sent_bytes(), 0);
}

TEST(EmbeddingPlanner, TablesSmallerThanAShareAreCopied) {
  const std::vector<EmbeddingTable> tables = {{"large", 1'000'000, 16, 1}, {"tiny", 3, 16, 1}};
  const auto placement = plan_placement(tables, {.ranks = 2, .global_batch = 2048});
  EXPECT_NE(placement[0].kind, PlacementKind::Replicated);
  EXPECT_EQ(placement[1].kind, PlacementKind::Replicated);
}

TEST(EmbeddingPlanner, ADearTableIsCutByColumns) {
  std::vector<EmbeddingTable> tables = equal_tables(4, 100'000, 64);
  tables[2].max_ids = 100;
  const PlacementInput input{.ranks = 4, .global_batch = 4096};
  const auto placement = plan_placement(tables, input);
  EXPECT_EQ(placement[2].kind, PlacementKind::Column);
  EXPECT_EQ(placement[2].parts, 4);
  EXPECT_LT(imbalance(loads(tables, input)), 1.1);
}

// Graham's bound for whole parts: no rank has more than 4/3 of the best, so of the mean here.
TEST(EmbeddingPlanner, UnequalTablesAreBalanced) {
  std::vector<EmbeddingTable> tables;
  for (int t = 0; t < 40; ++t) tables.push_back({fmt::format("T{}", t), 100'000, 32, 1 + t * t % 17});
  for (const int ranks : {2, 3, 5, 8})
    EXPECT_LT(imbalance(loads(tables, {.ranks = ranks, .global_batch = 8192})), 4.0 / 3) << ranks << " ranks";
}

TEST(EmbeddingPlanner, MoreRanksThanTables) {
  const auto tables = equal_tables(3, 100'000, 64);
  const std::vector<RankLoad> all = loads(tables, {.ranks = 12, .global_batch = 12'000});
  for (const RankLoad& load : all) EXPECT_GE(load.tables, 1);
  EXPECT_LT(imbalance(all), 1.5);
}

TEST(EmbeddingPlanner, TablesTooLargeForARankAreCutByRows) {
  const std::vector<EmbeddingTable> tables = {{"large", 40'000'000, 128, 1}, {"other", 1'000'000, 128, 1}};
  PlacementInput input{.ranks = 4, .global_batch = 8192};
  input.memory_of_rank = 8 * kGib;  // the first has 19 GiB
  const auto placement = plan_placement(tables, input);
  EXPECT_EQ(placement[0].kind, PlacementKind::Row);
  for (const RankLoad& load : loads_of(Placement(tables, placement, 4), input))
    EXPECT_LE(load.bytes, *input.memory_of_rank);
}

}  // namespace
}  // namespace trifold::test
