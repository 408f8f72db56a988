// Bubbles that Qi et al. ("Zero Bubble Pipeline Parallelism", arXiv 2401.10241) give for their measured times of F, B
// (here I), W and messages, against the simulator with the same times: the idle time of the rank that takes longest,
// from its first to its last computation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/simulate.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

// Milliseconds of one micro-batch on a rank, and bubbles.
struct PublishedBubbles {
  int ranks, micros;
  double f, i, w, message;
  int chunks;  // of the interleaved schedule
  double one_f_one_b, interleaved, zb_h1, zb_h2;
};

constexpr PublishedBubbles kPublishedBubbles[] = {
    {8, 24, 18.522, 18.086, 9.337, 0.601, 3, 0.2431, 0.1055, 0.1585, 0.1083},
    {8, 32, 18.513, 18.086, 9.331, 0.626, 3, 0.1985, 0.0818, 0.1242, 0.0837},
    {8, 64, 18.546, 18.097, 9.321, 0.762, 3, 0.1240, 0.0443, 0.0674, 0.0444},
    {8, 24, 29.718, 29.444, 19.927, 0.527, 4, 0.2347, 0.0808, 0.1323, 0.0698},
    {8, 64, 29.935, 29.621, 19.388, 0.535, 4, 0.1091, 0.0320, 0.0554, 0.0294},
    {32, 96, 10.419, 10.207, 7.715, 0.408, 2, 0.2646, 0.1493, 0.1421, 0.0641},
    {32, 128, 10.408, 10.204, 7.703, 0.408, 2, 0.2168, 0.1164, 0.1106, 0.0490},
    {32, 256, 10.402, 10.248, 7.698, 0.460, 2, 0.1352, 0.0624, 0.0594, 0.0257}};

double simulated_bubble(const PublishedBubbles& row, Schedule schedule, int chunks) {
  const test::Complete plan = test::complete(schedule, row.ranks, chunks, row.micros);
  CostModel cost;
  cost.timeline = false;
  cost.message_seconds = row.message;
  StageCost stage;
  stage.f = row.f / chunks;
  stage.i = row.i / chunks;
  stage.w = row.w / chunks;
  cost.stages.assign(static_cast<size_t>(plan.shape.stages), stage);
  double longest = 0, bubble = 0;
  for (const SimulatedRank& rank : simulate(plan.plan, plan.shape, cost).ranks) {
    const double span = rank.busy + rank.own_span_idle;
    if (span > longest) bubble = rank.own_span_idle / span;
    longest = std::max(longest, span);
  }
  return bubble;
}

TEST(PublishedBubbles, OfMeasuredTimesAreThoseOfTheSimulator) {
  constexpr double kOnePoint = 0.01, kDigit = 0.0001;
  for (const PublishedBubbles& row : kPublishedBubbles) {
    SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", row.ranks, row.micros));
    EXPECT_NEAR(simulated_bubble(row, Schedule::OneFOneB, 1), row.one_f_one_b, kDigit);
    EXPECT_NEAR(simulated_bubble(row, Schedule::ZbH2, 1), row.zb_h2, kDigit);
    EXPECT_NEAR(simulated_bubble(row, Schedule::ZbH1, 1), row.zb_h1, kDigit);
    EXPECT_NEAR(simulated_bubble(row, Schedule::Interleaved, row.chunks), row.interleaved, kOnePoint);
  }
}

}  // namespace
}  // namespace trifold
