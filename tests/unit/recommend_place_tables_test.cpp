// Tables under --memory-limit: placements that fit are not rejected, and the message is true if none fits.
#include "recommend/planning/place_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "recommend/recommender_setup.h"

namespace trifold::test {
namespace {

ClickSchema large_tables() {
  ClickSchema schema;
  schema.dense = 13;
  for (const int64_t rows : {40'000'000, 39'000'000, 17'000'000, 10'000'000, 590'000, 12'000, 7'000, 63, 3})
    schema.tables.push_back({fmt::format("C{}", schema.tables.size() + 1), rows, 1});
  return schema;
}

RecommendConfig on_ranks(int ranks, const char* placement, double limit) {
  RecommendConfig config;
  config.model.embedding_dim = 128;
  config.model.bottom_mlp = {512, 256, 128};
  config.model.top_mlp = {1024, 1024, 512, 256, 1};
  config.training.global_batch_size = 262'144;
  config.placement.placement = TablePlacements::parse(placement);
  config.placement.memory_limit = limit;
  config.mesh.ranks = ranks;
  config.mesh.device = ComputeDevice::Cuda;
  return config;
}

// The message of a rejection; empty if accepted.
std::string refusal(const RecommendConfig& config, const ClickSchema& schema) {
  try {
    recommender_setup(config, schema, config.mesh.ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return {};
}

// The most that a rank holds, GiB.
double needed(const std::string& placement, const ClickSchema& schema, int ranks) {
  const RecommenderSetup setup = recommender_setup(on_ranks(ranks, placement.c_str(), 1e6), schema, ranks);
  const Placement placed(embedding_tables(schema, setup.model.width), setup.placement, ranks);
  size_t most = 0;
  for (const RecommenderMemory& rank : memory_of_ranks(setup, placed, true))
    most = std::max(most, rank.total());
  return static_cast<double>(most) / (1 << 30);
}

// The reported number is true: that many ranks suffice, and one fewer do not.
TEST(PlaceTables, SaysHowManyRanksWouldDo) {
  const ClickSchema schema = large_tables();
  for (const auto& [ranks, placement, limit] : {std::tuple{4, "auto", 16.0},
                                                {2, "auto", 26.0},
                                                {2, "auto", 30.0},
                                                {2, "table", 16.0},
                                                {1, "auto", 20.0}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {}, {} GiB", ranks, placement, limit));
    const std::string message = refusal(on_ranks(ranks, placement, limit), schema);
    std::smatch number;
    ASSERT_TRUE(
        std::regex_search(message, number, std::regex(R"(\(--placement row\), (\d+) ranks would suffice)")))
        << message;
    const int enough = std::stoi(number[1]);
    EXPECT_GE(enough, ranks);
    EXPECT_EQ(refusal(on_ranks(enough, "row", limit), schema), "");
    EXPECT_EQ(refusal(on_ranks(enough, "auto", limit), schema), "");
    EXPECT_NE(refusal(on_ranks(enough - 1, "row", limit), schema), "");
  }
}

// Every rank has the vectors of the global batch of its parts, however many there are.
TEST(PlaceTables, SaysWhenNoNumberOfRanksWouldDo) {
  const std::string message = refusal(on_ranks(4, "auto", 1), large_tables());
  EXPECT_NE(message.find("not even 1024 ranks"), std::string::npos) << message;
  EXPECT_NE(message.find("--global-batch-size"), std::string::npos) << message;
  EXPECT_NE(refusal(on_ranks(1024, "row", 1), large_tables()), "");
}

// If sharding by rows fits, so does the planner's own choice.
TEST(PlaceTables, AutoTakesRowsBeforeItRefuses) {
  const ClickSchema schema = large_tables();
  for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) {
    SCOPED_TRACE(ranks);
    const double rows = needed("row", schema, ranks);
    for (const double more : {1e-6, 0.3, 1.0, 3.0})
      EXPECT_EQ(refusal(on_ranks(ranks, "auto", rows + more), schema), "") << "rows need " << rows << " GiB";
    EXPECT_NE(refusal(on_ranks(ranks, "row", rows - 1e-3), schema), "");
  }
}

// The planner's choice for the whole limit is kept if everything else fits too.
TEST(PlaceTables, AutoKeepsItsFirstChoiceWhereItFits) {
  const ClickSchema schema = large_tables();
  const auto tables = embedding_tables(schema, 128);
  int kept = 0;
  for (const int ranks : {2, 3, 4, 8})
    for (double limit = 8; limit < 120; limit *= 1.05) {
      const RecommendConfig config = on_ranks(ranks, "auto", limit);
      const std::vector<TablePlacement> first =
          plan_placement(tables, placement_input(config, schema, ranks));
      RecommenderSetup setup = recommender_setup(on_ranks(ranks, "row", 1e6), schema, ranks);
      size_t most = 0;
      for (const RecommenderMemory& rank : memory_of_ranks(setup, Placement(tables, first, ranks), true))
        most = std::max(most, rank.total());
      if (static_cast<double>(most) > limit * (1 << 30)) continue;
      ++kept;
      place_tables(setup, config, ranks);
      for (size_t t = 0; t < first.size(); ++t)
        EXPECT_TRUE(setup.placement[t].kind == first[t].kind &&
                    setup.placement[t].first_rank == first[t].first_rank &&
                    setup.placement[t].parts == first[t].parts)
            << "table " << t << ", " << ranks << " ranks, " << limit << " GiB";
    }
  EXPECT_GT(kept, 20);
}

}  // namespace
}  // namespace trifold::test
