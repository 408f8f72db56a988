// Schedule files written by PyTorch 2.15 (tools/reference/torch_schedules.py), and those written for it.
#include "schedule/torch/torch_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <regex>
#include <string_view>

#include "config/fields/schedule.h"
#include "core/error.h"
#include "unit/schedule_testing.h"

namespace trifold::torch_schedule_test {
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
  // If PyTorch waits for sends, Trifold places the messages.
  EXPECT_EQ(read("0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0"),
            "0F0,0B0\n1F0,1B0\n");
}

TEST(TorchSchedule, AWaitFollowsItsTransfer) {
  EXPECT_EQ(error_of("0F0,0SEND_F0,0WAIT_SEND_F1\n"),
            "row 1, cell 3: '0WAIT_SEND_F1' waits for 0SEND_F1, "
            "which does not come before it or was waited for already");
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

TEST(TorchSchedule, PlansContainTheGatheringOfWeights) {
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

// Computation written by PyTorch is written again unchanged, also from the plan that Trifold completed.
TEST(TorchSchedule, WritesFilesThatPyTorchReads) {
  for (const char* schedule : kSchedules) {
    const Plan compute = golden(schedule, "compute");
    EXPECT_EQ(to_torch_csv(compute), to_string(compute)) << schedule;
    EXPECT_EQ(to_torch_csv(golden(schedule, "comms")), to_string(compute)) << schedule;
  }
  const auto complete = test::complete(Schedule::ZbH1, 2, 1, 4, false, 3);
  EXPECT_EQ(to_torch_csv(complete.plan), to_string(make_schedule(Schedule::ZbH1, 2, 1, 4)));
  EXPECT_THROW(to_torch_csv(make_async(Schedule::PipeDream, 2, 2, 2)), Error);
}

// The cells of a file that are not waits.
std::string without_waits(const std::string& text) {
  return std::regex_replace(text, std::regex("\\d+WAIT_[A-Z_]+\\d*,?"), "");
}

size_t cells_with(const std::string& text, const char* pattern) {
  const std::regex cell(std::string("(^|[,\n])\\d+") + pattern + "\\d*(?=[,\r\n])");
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), cell), std::sregex_iterator()));
}

// Read back, the file has the same computation, and written again it is the same. Its messages can run as
// they stand: a rank that waits in each for the other waits for more than PyTorch does.
void expect_round_trip(const Plan& plan, int micros) {
  const std::string text = to_torch_comms_csv(plan);
  const Plan read = parse_plan_with_waits(text);
  EXPECT_EQ(to_torch_csv(read), to_torch_csv(plan));
  EXPECT_EQ(to_torch_comms_csv(read), text);
  EXPECT_EQ(cells_with(text, "SEND_[FB]"), cells_with(text, "WAIT_SEND_[FB]")) << text;
  EXPECT_EQ(cells_with(text, "REDUCE_GRAD"), cells_with(text, "WAIT_REDUCE_GRAD")) << text;
  EXPECT_EQ(cells_with(text, "REDUCE_GRAD"), stage_ranks(plan).size()) << text;
  EXPECT_EQ(text.find(",,"), std::string::npos) << "PyTorch takes no empty cell: " << text;
  const auto [complete, shape] = test::complete(parse_plan(without_waits(text)), micros);
  EXPECT_NO_THROW(check_plan(complete, shape)) << text;
}

TEST(TorchSchedule, WritesCommunicationOfEverySchedule) {
  for (const std::string_view name : schedule_names()) {
    const Schedule schedule = find_schedule(name).value();
    if (is_async(schedule)) {
      EXPECT_THROW(to_torch_comms_csv(make_async(schedule, 2, 2, 2)), Error) << name;
      EXPECT_THROW(to_torch_csv(make_async(schedule, 2, 2, 2)), Error) << name;
      continue;
    }
    for (const int ranks : {2, 4}) {
      const int chunks = needs_two_chunks(schedule) || schedule == Schedule::Interleaved ? 2 : 1;
      const int micros = std::max(8, min_micros(schedule, ranks, chunks));
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, ranks));
      expect_round_trip(make_schedule(schedule, ranks, chunks, micros), micros);
      // For the complete plan, whose last gradients are split by blocks, and also with pairs.
      const auto complete = test::complete(schedule, ranks, chunks, micros, true, 3);
      expect_round_trip(complete.plan, micros);
    }
  }
  expect_round_trip(one_stage(4), 4);
}

// Gathers and reductions are where PyTorch had put them; messages and waits are as many.
TEST(TorchSchedule, WritesCommunicationOfPyTorchsFiles) {
  for (const char* schedule : kSchedules) {
    const std::string text = to_torch_comms_csv(golden(schedule, "comms"));
    EXPECT_EQ(to_string(parse_plan_with_waits(text)), to_string(golden(schedule, "comms"))) << schedule;
    const std::string theirs = test::golden_text("torch_" + std::string(schedule) + "_2rank_4mb_comms.csv");
    for (const char* cell : {"SEND_F", "SEND_B", "RECV_F", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B"})
      EXPECT_EQ(cells_with(text, cell), cells_with(theirs, cell)) << schedule << " " << cell;
    expect_round_trip(golden(schedule, "comms"), 4);
  }
  EXPECT_EQ(to_torch_comms_csv(make_schedule(Schedule::OneFOneB, 2, 1, 2)),
            "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,"
            "0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,"
            "1RESHARD,1WAIT_SEND_B0,1WAIT_SEND_B1\n");
}

}  // namespace
}  // namespace trifold::torch_schedule_test
