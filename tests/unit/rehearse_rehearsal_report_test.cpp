// What a rehearsal prints and writes.
#include "rehearse/rehearsal_report.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/files.h"

namespace trifold::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

ReportedRank a_rank() {
  ReportedRank reported;
  RehearsedRank& rank = reported.rank;
  rank.rank = 24;
  rank.pipeline_rank = 3;
  rank.steps = 3;
  rank.micro_batches = 2;
  rank.step_seconds = 1.5;
  rank.planned.parameters = rank.held.parameters = 4 * kMiB;
  rank.planned.predicted_activations = 8 * kMiB;
  rank.held.predicted_activations = 9 * kMiB;
  rank.actions = {{ActionKind::F, 3, 2, 0.25}, {ActionKind::SendB, 3, 2, 0.001}};
  reported.planned_actions = {0.2, std::nullopt};
  rank.calls = {{"tp", "all_reduce", 8, 1024, 4096, 4, 0.01}};
  return reported;
}

std::string text_of(const ReportedRank& reported) {
  return fmt::format("{}\n", fmt::join(rank_lines(reported), "\n"));
}

TEST(RehearsalReport, ComparesARankWithItsPlan) {
  const std::string text = text_of(a_rank());
  expect_has(text, "rank 24     pipeline rank 3, 3 steps of 2 micro-batches: 1.500 s a step alone\n");
  expect_has(text, "weights        4.00 MiB     4.00 MiB  the same\n");
  expect_has(text, "activations    8.00 MiB     9.00 MiB  +1.00 MiB (+12.50 %)\n");
  expect_has(text, "all           12.00 MiB    13.00 MiB  +1.00 MiB (+8.33 %)\n");
  expect_has(text, "3F                 2   200.000 ms   250.000 ms  1.25 x\n");
  expect_has(text, "3SEND_B            2            -     1.000 ms\n");
  expect_has(text, "all_reduce     tp");
  EXPECT_EQ(text.find("gradients"), std::string::npos) << text;  // a category that is empty
  EXPECT_EQ(text.find("fails"), std::string::npos) << text;
}

TEST(RehearsalReport, NamesTheWholeStepAndFailures) {
  ReportedRank reported = a_rank();
  reported.whole_step = reported.rank.planned;
  reported.whole_step->optimizer = 20 * kMiB;
  reported.whole_step_micros = 128;
  reported.rank.failure = "it does not fit";
  const std::string text = text_of(reported);
  expect_has(text, "the step of all 128 micro-batches is planned to need 32.00 MiB\n");
  expect_has(text, "fails       it does not fit\n");
  reported.whole_step_micros = 1;
  expect_has(text_of(reported), "the step of all 1 micro-batch is planned");
}

TEST(RehearsalReport, PrintsRatiosWithoutExponents) {
  ReportedRank reported = a_rank();
  const auto ratio_of = [&](double planned) {
    reported.planned_actions = {planned, std::nullopt};
    return text_of(reported);
  };
  expect_has(ratio_of(0.25 / 5854), "  5850 x\n");
  expect_has(ratio_of(0.25 / 999.7), "  1000 x\n");
  expect_has(ratio_of(0.25 / 1234567), "  1230000 x\n");
  expect_has(ratio_of(0.25 / 253.4), "  253 x\n");
  expect_has(ratio_of(0.25 / 0.01234), "  0.0123 x\n");
  expect_has(ratio_of(0.25 / 0.00002), "  0.000020 x\n");
}

TEST(RehearsalReport, ShowsCategoriesOfOtherKindsOfRuns) {
  ReportedRank reported = a_rank();
  reported.rank.parts = {{"table state", 3 * kMiB, 2 * kMiB}};
  const std::string text = text_of(reported);
  expect_has(text, "rank 24     3 steps: 1.500 s a step alone\n");
  expect_has(text, "table state    3.00 MiB     2.00 MiB  -1.00 MiB (-33.33 %)\n");
  EXPECT_EQ(text.find("weights"), std::string::npos) << text;
  EXPECT_EQ(to_json(reported)["memory"]["held"]["table_state_bytes"], 2 * kMiB);
  reported.rank.parts[0].held = 0;  // the rank did not begin
  expect_has(text_of(reported), "table state    3.00 MiB\n");
}

TEST(RehearsalReport, WritesTheSameFigures) {
  const auto json = to_json(a_rank());
  EXPECT_EQ(json["rank"], 24);
  EXPECT_EQ(json["memory"]["planned"]["bytes"], 12 * kMiB);
  EXPECT_EQ(json["memory"]["held"]["activation_bytes"], 9 * kMiB);
  EXPECT_EQ(json["actions"][0]["planned_seconds"], 0.2);
  EXPECT_TRUE(json["actions"][1]["planned_seconds"].is_null());
  EXPECT_EQ(json["collectives"][0]["all_bytes"], 4096);
  EXPECT_TRUE(json["failure"].is_null());
}

}  // namespace
}  // namespace trifold::test
