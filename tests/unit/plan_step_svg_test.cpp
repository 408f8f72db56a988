#include "plan/pictures/step_svg.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "recommend/recommender.h"
#include "schedule/passes.h"
#include "schedule/schedules.h"
#include "schedule/table_step.h"

namespace trifold {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Simulation simulated(Schedule schedule, int ranks, int chunks, int micros, size_t& actions) {
  const std::vector<int> blocks(static_cast<size_t>(ranks * chunks), 1);
  const std::vector<std::vector<int>> ends(blocks.size(), {0});
  const Plan plan =
      add_communication(add_reduce(make_schedule(schedule, ranks, chunks, micros), blocks, ends));
  actions = 0;
  for (const RankPlan& row : plan) actions += row.size();
  PlanShape shape;
  shape.stages = ranks * chunks;
  shape.micros = micros;
  shape.blocks = blocks;
  CostModel costs;
  StageCost stage;
  stage.f = stage.i = stage.w = 1e-3;
  stage.message_bytes = 8;
  costs.stages.assign(static_cast<size_t>(shape.stages), stage);
  costs.message_seconds = 1e-4;
  costs.bytes_per_second = 1e9;
  return simulate(plan, shape, costs);
}

TEST(PlanSvg, HasABoxForEveryAction) {
  for (const Schedule schedule : {Schedule::OneFOneB, Schedule::ZbV}) {
    size_t actions = 0;
    const int chunks = schedule == Schedule::ZbV ? 2 : 1;
    const std::string svg = timeline_svg(simulated(schedule, 4, chunks, 8, actions), {"a < b & c", "small"});
    EXPECT_EQ(count(svg, " box\""), actions);
    EXPECT_EQ(count(svg, "</title></rect>"), actions);
    EXPECT_EQ(count(svg, "a &lt; b &amp; c"), 1U);
    EXPECT_EQ(count(svg, ">rank "), 4U);
    for (int micro = 0; micro < 8; ++micro)
      EXPECT_GE(count(svg, ">" + std::to_string(micro) + "</text>"), 4U) << "number of micro-batch " << micro;
    EXPECT_EQ(count(svg, "first to last"), chunks == 2 ? 1U : 0U);
    EXPECT_EQ(count(svg, "W weight gradient"), chunks == 2 ? 1U : 0U);
  }
}

// The step of a recommender has the most kinds of boxes in the narrowest picture.
TEST(PlanSvg, TheLegendStaysWithinThePicture) {
  const TableStepShape shape;
  const auto cost = [&](const Action& action) {
    return action.kind != ActionKind::ReduceGrad && part_of(action, shape) ? 1.0 : 0.0;
  };
  const std::string svg = timeline_svg(simulate_table_step(table_step(shape), shape, cost), {"a step", ""});
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("<svg [^>]*width=\"(\\d+)\"")));
  const std::regex entry("class=\"l\" x=\"(\\d+)\" y=\"(\\d+)\">([^<]*)<");
  int entries = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), entry), end; at != end; ++at, ++entries)
    EXPECT_LT(std::stod((*at)[1]) + 6.6 * static_cast<double>((*at)[3].length()), std::stod(size[1]))
        << (*at)[3];
  EXPECT_GE(entries, 9);
}

// Boxes of one length are as wide in each of them, and each has colours of its own.
TEST(PlanSvg, SeveralStepsHaveOneScale) {
  size_t few = 0, many = 0;
  const std::vector<Timeline> steps = {{simulated(Schedule::OneFOneB, 4, 1, 8, few), {"1. short", "a"}},
                                       {simulated(Schedule::Interleaved, 4, 2, 16, many), {"2. long", "b"}}};
  const std::string svg = timelines_svg(steps);
  EXPECT_EQ(count(svg, " box\""), few + many);
  EXPECT_EQ(count(svg, "<svg "), 1U);
  const std::regex box("class=\"F0 box\" x=\"[^\"]*\" y=\"[^\"]*\" width=\"([^\"]*)\"");
  std::set<std::string> widths;
  for (std::sregex_iterator at(svg.begin(), svg.end(), box), end; at != end; ++at) widths.insert((*at)[1]);
  EXPECT_EQ(widths.size(), 1U);
  for (const char* scope : {".timeline0 ", ".timeline1 "})
    EXPECT_EQ(count(svg, scope + std::string(".F0{")), 1U) << scope;
  EXPECT_EQ(count(svg, ".timeline0 .F1{"), 0U);
  EXPECT_EQ(count(svg, ".timeline1 .F1{"), 1U);
}

TEST(PlanSvg, ManyActionsMakeNoHugeFile) {
  size_t actions = 0;
  const std::string svg = timeline_svg(simulated(Schedule::OneFOneB, 64, 1, 512, actions), {"large", ""});
  EXPECT_GT(actions, 100'000U);
  EXPECT_LT(svg.size(), 2'000'000U);
  EXPECT_EQ(count(svg, " box\""), 0U);
  EXPECT_EQ(count(svg, "class=\"pF0\""), 64U);
  EXPECT_EQ(count(svg, "class=\"pB0\""), 64U);
}

}  // namespace
}  // namespace trifold
