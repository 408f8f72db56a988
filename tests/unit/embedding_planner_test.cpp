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
    input.exchange_bytes = bytes;
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

// Without a limit. The share of the fullest rank in all bytes, times the ranks.
double fullest(const std::vector<RankLoad>& loads) {
  double most = 0, all = 0;
  for (const RankLoad& load : loads) {
    most = std::max(most, static_cast<double>(load.bytes));
    all += static_cast<double>(load.bytes);
  }
  return most * static_cast<double>(loads.size()) / all;
}

TEST(EmbeddingPlanner, ALargeTableIsCutSoThatRanksHoldTheSame) {
  for (const int64_t width : {4, 8, 16, 64})
    for (const int ranks : {2, 3, 4, 8}) {
      const std::vector<EmbeddingTable> tables = {{"large", 50'000'000, width, 1},
                                                  {"other", 1'000'000, width, 1}};
      const PlacementInput input{.ranks = ranks, .global_batch = 4096};
      const std::vector<RankLoad> all = loads(tables, input);
      EXPECT_LT(fullest(all), 2.1) << "width " << width << ", " << ranks << " ranks";
      if (width / 4 >= ranks) {
        EXPECT_LT(fullest(all), 1.15);
        EXPECT_EQ(plan_placement(tables, input)[0].kind, PlacementKind::Column);
      }
    }
}

TEST(EmbeddingPlanner, TablesOfOneCostAreDividedByBytes) {
  std::vector<EmbeddingTable> tables;  // Criteo Kaggle's
  for (const int64_t rows : {1460,  583,  10'131'227, 2'202'608, 305, 24,      12517,     633,    3,
                             93145, 5683, 8'351'593,  3194,      27,  14992,   5'461'306, 10,     5652,
                             2173,  4,    7'046'547,  18,        15,  286'181, 105,       142'572})
    tables.push_back({fmt::format("C{}", tables.size() + 1), rows, 16, 1});
  for (const int ranks : {2, 4}) {
    const PlacementInput input{.ranks = ranks, .global_batch = 2048};
    EXPECT_LT(fullest(loads(tables, input)), 1.25) << ranks << " ranks";
    EXPECT_LT(imbalance(loads(tables, input)), 1.3);
  }
  // In turn, of one cost each: by cost alone, rank 0 would have all large ones.
  std::vector<EmbeddingTable> turns;
  for (int t = 0; t < 8; ++t)
    turns.push_back({fmt::format("T{}", t), t % 2 == 0 ? 1'000'000 : 100'000, 16, 1});
  PlacementInput input{.ranks = 2, .global_batch = 2048};
  EXPECT_LT(fullest(loads(turns, input)), 1.01);
  input.balance_bytes = false;
  EXPECT_GT(fullest(loads(turns, input)), 1.8);
}

TEST(EmbeddingPlanner, SmallTablesStayWhole) {
  const std::vector<EmbeddingTable> tables = {{"large", 900'000, 16, 1}, {"other", 9'000, 16, 1}};
  for (const TablePlacement& how : plan_placement(tables, {.ranks = 2, .global_batch = 2048}))
    EXPECT_EQ(how.kind, PlacementKind::Table);
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
