// The trace of chosen steps.
#include "run/flight/step_trace.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "run/flight/flight_run.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

// Cannot write a trace.
class FullDisk : public SaveObserver {
 public:
  void on_saved(int64_t /*step*/, const std::string& /*directory*/) override {}
  void on_warning(const std::string& text) override { warnings.push_back(text); }
  void on_trace(const FlightFiles& files) override {
    logs = files.logs.size();
    fail("t.pftrace: no space is left");
  }

  std::vector<std::string> warnings;
  size_t logs = 0;
};

WatchConfig traced(int64_t from, int64_t steps) {
  WatchConfig watch;
  watch.trace = "t.pftrace";
  watch.trace_from = from;
  watch.trace_steps = steps;
  return watch;
}

// Neither within the run nor at its end.
TEST(StepTrace, AFileThatCannotBeWrittenEndsNoRun) {
  for (const int64_t last_step : {2, 5}) {
    FullDisk disk;
    run_ranks(2, [&](Communicator& world) {
      FlightRun flight([] { return std::string(); }, nullptr);
      const auto recorder = flight.start(world, std::nullopt);
      StepTrace trace(world, traced(2, 1), 0, last_step, world.rank() == 0 ? &disk : nullptr);
      for (int64_t done = 0; done < last_step; ++done) {
        trace.before_step(done, 1);
        world.barrier();
      }
      trace.finish();
      world.barrier();
      recorder->finish(FlightLog::End::Finished);
    });
    EXPECT_EQ(disk.logs, 2U);
    ASSERT_EQ(disk.warnings.size(), 1U);
    EXPECT_EQ(disk.warnings[0], "--trace: t.pftrace: no space is left; the run goes on without a trace");
  }
}

}  // namespace
}  // namespace trifold::test
