// Messages between stages in closed form, against the simulator.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "support/planned_runs.h"
#include "support/plans.h"

namespace trifold::test {
namespace {

struct MessageCase {
  Schedule schedule;
  int chunks = 1;
  double most_off = 0.05;
};

// Seconds of a step of four layers a rank on this many bytes a second between ranks: in closed form, simulated.
std::pair<double, double> seconds(const MessageCase& pipeline, int ranks, int64_t micros, double gbytes) {
  PlanConfig config;
  PretrainConfig& run = config.run;
  run = gpt_of({4 * int64_t{ranks}, 2048, 16, 2048, 1024}, ranks);
  run.precision.bf16 = true;
  run.mesh.pipeline_model_parallel_size = ranks;
  run.pipeline.schedule = pipeline.schedule;
  if (pipeline.chunks > 1) run.pipeline.num_virtual_stages_per_pipeline_rank = pipeline.chunks;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = micros;
  config.hardware = "h100";
  config.hardware_set = {fmt::format("nvlink-gbytes={}", gbytes)};
  const PlanReport report = report_of(resolve(config));
  return {report.forecast->closed_form.all(), report.step_seconds};
}

// A message takes 0.1, 0.4 and 0.9 of the time of a micro-batch.
TEST(PlanMessages, AreWaitedForAsInTheSimulator) {
  const MessageCase cases[] = {{Schedule::Gpipe, 1, 0.08},     {Schedule::OneFOneB, 1, 0.05},
                               {Schedule::ZbH1, 1, 0.08},      {Schedule::ZbH2, 1, 0.08},
                               {Schedule::ZbV, 2, 0.15},       {Schedule::DualPipeV, 2, 0.11},
                               {Schedule::Interleaved, 2, 0.3}};
  for (const MessageCase& each : cases)
    for (const double gbytes : {450.0, 20.0, 5.0, 2.0})
      for (const int ranks : {4, 8}) {
        const auto [closed, simulated] = seconds(each, ranks, 4 * int64_t{ranks}, gbytes);
        EXPECT_NEAR(closed / simulated, 1, each.most_off)
            << schedule_name(each.schedule) << " on " << ranks << " ranks, " << gbytes << " GB/s";
      }
}

}  // namespace
}  // namespace trifold::test
