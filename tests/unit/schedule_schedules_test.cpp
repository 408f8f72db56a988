#include "schedule/schedules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

using Json = nlohmann::json;

std::string row(const Plan& plan, size_t rank) { return to_string(Plan{plan.at(rank)}); }

// Every action table of the golden file, action for action.
TEST(Schedules, AreTheGoldenTables) {
  const Json golden = Json::parse(test::golden_text("schedules.json")).at("schedules");
  int tables = 0;
  for (const Json& entry : golden) {
    const Schedule schedule = find_schedule(entry.at("schedule").get<std::string>()).value();
    const Plan plan = make_schedule(schedule, entry.at("p"), entry.at("chunks_per_rank"), entry.at("m"));
    ASSERT_EQ(plan.size(), entry.at("p").get<size_t>());
    if (!entry.contains("csv")) continue;
    std::string text;
    for (const Json& line : entry.at("csv")) text += line.get<std::string>() + "\n";
    EXPECT_EQ(to_string(plan), text) << entry.at("schedule") << " p " << entry.at("p") << " m "
                                     << entry.at("m");
    ++tables;
  }
  EXPECT_EQ(tables, 30);
}

TEST(Schedules, DualPipeVIsPyTorchsPublishedTrace) {
  EXPECT_EQ(to_string(make_schedule(Schedule::DualPipeV, 4, 2, 10)),
            test::golden_text("dualpipev_4rank_10mb.csv"));
}

// Traces small enough to follow by hand.
TEST(Schedules, HandMadeTraces) {
  EXPECT_EQ(row(make_schedule(Schedule::OneFOneB, 4, 1, 8), 0),
            "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0B5,0B6,0B7\n");
  EXPECT_EQ(row(make_schedule(Schedule::OneFOneB, 4, 1, 2), 1), "1F0,1F1,1B0,1B1\n");
  EXPECT_EQ(to_string(make_schedule(Schedule::Interleaved, 2, 2, 4)),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
  EXPECT_EQ(to_string(one_stage(2)), "0F0,0B0,0F1,0B1\n");
}

// 10 micro-batches on 4 ranks go in two groups of 5, 11 in groups of 6 and 5, 3 in one.
TEST(Schedules, InterleavedWithMicroBatchesThatRanksDoNotDivide) {
  EXPECT_EQ(
      row(make_schedule(Schedule::Interleaved, 4, 2, 10), 3),
      "3F0,3F1,3F2,3F3,3F4,7F0,7B0,7F1,7B1,7F2,7B2,7F3,7B3,7F4,7B4,3F5,3B0,3F6,3B1,3F7,3B2,3F8,3B3,3F9,3B4,"
      "7F5,7B5,7F6,7B6,7F7,7B7,7F8,7B8,7F9,7B9,3B5,3B6,3B7,3B8,3B9\n");
  EXPECT_EQ(row(make_schedule(Schedule::Interleaved, 4, 2, 11), 3).substr(0, 37),
            "3F0,3F1,3F2,3F3,3F4,3F5,7F0,7B0,7F1,7");
  EXPECT_EQ(row(make_schedule(Schedule::Interleaved, 4, 2, 3), 3),
            "3F0,3F1,3F2,7F0,7B0,7F1,7B1,7F2,7B2,3B0,3B1,3B2\n");
}

// Each update is made from gradients of the weights that its rank had p - r micro-batches before.
TEST(Schedules, PipeDreamStashesTheVersionOfEachMicroBatch) {
  EXPECT_EQ(to_string(make_async(Schedule::PipeDream, 2, 1, 4)),
            "0F0,0F1,0B0,0STEP,0F2v1,0B1,0STEP,0F3v2,0B2v1,0STEP,0B3v2,0STEP\n"
            "1F0,1B0,1STEP,1F1v1,1B1v1,1STEP,1F2v2,1B2v2,1STEP,1F3v3,1B3v3,1STEP\n");
  EXPECT_EQ(row(make_async(Schedule::PipeDream, 2, 2, 2), 0),
            "0F0,0F1,0B0,0F2,0B1,0STEP,0F3v1,0B2,0B3v1,0STEP\n");
}

TEST(Schedules, TwoBufferedWeightsAreOneBatchOldOnEveryRank) {
  EXPECT_EQ(to_string(make_async(Schedule::PipeDream2BW, 2, 2, 3)),
            "0F0,0F1,0B0,0F2,0B1,0STEP,0F3,0B2,0F4v1,0B3,0STEP,0F5v1,0B4v1,0B5v1,0STEP\n"
            "1F0,1B0,1F1,1B1,1STEP,1F2,1B2,1F3,1B3,1STEP,1F4v1,1B4v1,1F5v1,1B5v1,1STEP\n");
  EXPECT_EQ(row(make_async(Schedule::PipeDream, 4, 1, 2), 0),
            "0F0,0F1,0B0,0STEP,0B1,0STEP\n");  // fewer than p
}

TEST(Schedules, ForwardOnlyFollowsThePlacement) {
  EXPECT_EQ(to_string(forward_only(Schedule::Interleaved, 2, 2, 3)),
            "0F0,0F1,2F0,2F1,0F2,2F2\n1F0,1F1,3F0,3F1,1F2,3F2\n");
  EXPECT_EQ(to_string(forward_only(Schedule::ZbV, 2, 2, 1)), "0F0,3F0\n1F0,2F0\n");
  EXPECT_EQ(to_string(forward_only(Schedule::OneFOneB, 1, 1, 2)), "0F0,0F1\n");
}

TEST(Schedules, RejectImpossibleSizes) {
  EXPECT_THROW(make_schedule(Schedule::DualPipeV, 4, 2, 7), Error);
  EXPECT_THROW(make_schedule(Schedule::ZbV, 4, 1, 8), Error);
  EXPECT_THROW(make_schedule(Schedule::Gpipe, 2, 1, 0), Error);
  EXPECT_THROW(make_schedule(Schedule::PipeDream, 2, 1, 4), Error);
  EXPECT_THROW(make_async(Schedule::OneFOneB, 2, 4, 2), Error);
  EXPECT_THROW(make_async(Schedule::PipeDream2BW, 4, 3, 2), Error);
  EXPECT_THROW(make_async(Schedule::PipeDream, 4, 3, 0), Error);
}

}  // namespace
}  // namespace trifold
