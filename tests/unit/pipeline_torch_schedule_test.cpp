// Files that PyTorch 2.15 wrote (tools/reference/torch_schedules.py), and what is written for it.
#include "pipeline/torch_schedule.h"

#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "unit/pipeline_testing.h"

namespace trifold {
namespace {

constexpr std::array kSchedules{"looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv",
                                "dualpipev"};

Plan golden(const std::string& schedule, const std::string& kind) {
  return parse_plan_with_waits(test::golden_text("torch_" + schedule + "_2rank_4mb_" + kind + ".csv"));
}

std::string error_of(const std::string& plan) {
  try {
    parse_plan_with_waits(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

TEST(TorchSchedule, WaitsAreTakenOut) {
  const auto read = [](const char* text) { return to_string(parse_plan_with_waits(text)); };
  EXPECT_EQ(read("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD, 0WAIT_REDUCE_GRAD\r\n"),
            "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n");
  // Where PyTorch waits for sends, messages are ours to place.
  EXPECT_EQ(read("0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0"),
            "0F0,0B0\n1F0,1B0\n");
}

TEST(TorchSchedule, AWaitFollowsWhatItIsFor) {
  EXPECT_EQ(
      error_of("0F0,0SEND_F0,0WAIT_SEND_F1\n"),
      "row 1, cell 3: '0WAIT_SEND_F1' waits for 0SEND_F1, which does not come before it or was waited for "
      "already");
  EXPECT_NE(error_of("0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0\n").find("row 1, cell 3"), std::string::npos);
  EXPECT_NE(error_of("0SEND_F0\n1F0,0WAIT_SEND_F0\n").find("row 2, cell 2"), std::string::npos);
  EXPECT_NE(error_of("0WAIT_REDUCE_GRAD,0REDUCE_GRAD\n").find("row 1, cell 1"), std::string::npos);
  for (const char* text : {"0F0,0WAIT_F0", "WAIT_SEND_F0", "0SEND_F0,0WAIT_", "0SEND_F0,0WAIT_SEND_F"})
    EXPECT_NE(error_of(text).find("row 1, cell "), std::string::npos) << text;
  EXPECT_NE(error_of("0SEND_F0,0WAIT_SEND_F0,0Q1").find("row 1, cell 3: '0Q1' is not an action"),
            std::string::npos);
}

// Whole stages, tied or not, with one bucket or several, reduced after the last micro-batch or after each.
TEST(TorchSchedule, CompletesEveryFileWithCommunication) {
  for (const char* schedule : kSchedules)
    for (const bool tied : {false, true})
      for (const int blocks : {1, 3})
        for (const bool each : {false, true}) {
          const auto [plan, shape] =
              test::complete(golden(schedule, "comms"), 4, tied, blocks, Pairs::Apart, each);
          EXPECT_NO_THROW(check_plan(plan, shape)) << schedule << " tied " << tied << " each " << each;
        }
}

// With the first and the last stage on two ranks, and their gradients reduced where the file says.
TEST(TorchSchedule, ReductionsOfATiedWeightMeet) {
  const auto tied = [](const char* text) {
    return to_string(test::complete(parse_plan(text), 1, true).plan);
  };
  EXPECT_EQ(tied("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"),
            "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_TIED,0REDUCE_GRAD@0,0STEP\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD@0,1REDUCE_TIED,1STEP\n");
  // On one rank the reduction waits for the gradient of the other use.
  EXPECT_EQ(tied("0F0,1F0,1I0,0B0,0REDUCE_GRAD,1W0,1REDUCE_GRAD\n"),
            "0F0,1F0,1I0,0B0,1W0,0REDUCE_GRAD@0,1REDUCE_GRAD@0,0STEP,1STEP\n");
}

TEST(TorchSchedule, PlansSayWhenWeightsAreGathered) {
  for (const char* schedule : kSchedules) {
    const Plan whole = golden(schedule, "comms");
    for (size_t rank = 0; rank < whole.size(); ++rank)
      for (size_t i = 0; i < whole[rank].size(); ++i) {
        if (whole[rank][i].kind != ActionKind::Unshard) continue;
        Plan plan = whole;
        plan[rank].erase(plan[rank].begin() + static_cast<std::ptrdiff_t>(i));
        const auto [complete, shape] = test::complete(plan, 4);
        EXPECT_THROW(check_plan(complete, shape), Error)
            << schedule << " without " << to_string(whole[rank][i]);
      }
  }
}

// Stages 0 and 1 with blocks of two units; the second unit of stage 0 is the first one of stage 1.
TEST(TorchSchedule, UnitsAreGatheredWithTheirStages) {
  const WeightUnit a{0, 0}, shared{0, 1}, b{1, 1};
  const UnitsOfBlocks units{{{a}, {shared}}, {{shared}, {b}}};
  EXPECT_EQ(to_string(Plan{add_residency(
                parse_plan("0UNSHARD,0F0,1UNSHARD,1F0,0RESHARD,1B0,1RESHARD,0UNSHARD,0B0,0STEP,1STEP")[0],
                units, 1)}),
            "0UNSHARD@0,0UNSHARD@1,0F0,1UNSHARD@1,1F0,0RESHARD@0,1B0,0RESHARD@1,1RESHARD@1,0UNSHARD@0,"
            "0UNSHARD@1,0B0,"
            "0RESHARD@0,0RESHARD@1,0STEP,1STEP\n");
  EXPECT_EQ(to_string(Plan{without_residency(parse_plan("0UNSHARD,0F0,0RESHARD,0STEP")[0])}), "0F0,0STEP\n");
}

// What PyTorch wrote as computation is written so again, from the plan that Trifold completes as well.
TEST(TorchSchedule, WritesWhatPyTorchReads) {
  for (const char* schedule : kSchedules) {
    const Plan compute = golden(schedule, "compute");
    EXPECT_EQ(to_torch_csv(compute), to_string(compute)) << schedule;
    EXPECT_EQ(to_torch_csv(golden(schedule, "comms")), to_string(compute)) << schedule;
  }
  const auto complete = test::complete(Schedule::ZbH1, 2, 1, 4, false, 3);
  EXPECT_EQ(to_torch_csv(complete.plan), to_string(make_schedule(Schedule::ZbH1, 2, 1, 4)));
  EXPECT_THROW(to_torch_csv(make_async(Schedule::PipeDream, 2, 2, 2)), Error);
}

}  // namespace
}  // namespace trifold
