// Goodput on failing machines: closed forms against published values, the simulation against the closed form and
// against runs counted by hand, and reports of planned runs.
#include "plan/goodput/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/planned_runs.h"
#include "support/plans.h"
#include "support/refusal.h"

namespace trifold::test {
namespace {

constexpr double kMinute = 60, kHours = 3600, kDays = 24 * kHours;
constexpr double kNoFailures = std::numeric_limits<double>::infinity();

// Daly 2006, figures 3 to 5: a save of 5 min, and means of 24 h, 6 h and 15 min between failures.
TEST(Goodput, IntervalsAreThoseOfThePaper) {
  EXPECT_NEAR(daly_interval(5, 24 * 60), 117, 0.5);
  EXPECT_NEAR(daly_interval(5, 6 * 60), 57, 0.5);
  EXPECT_NEAR(daly_interval(5, 15), 9.1, 0.05);
  EXPECT_EQ(daly_interval(31, 15), 15);  // a save longer than twice the mean
  EXPECT_EQ(young_interval(5, 24 * 60), 120);
  EXPECT_EQ(daly_interval(0, 60), 0);
}

TEST(Goodput, WithoutFailuresOnlySavesCost) {
  SaveCosts costs{.step = 2, .stall = 5};
  EXPECT_EQ(steady_goodput(costs, 10, kNoFailures), 20.0 / 25);
  EXPECT_EQ(best_interval(costs, kNoFailures, 1000), 1000);
  costs.tail = 30;  // longer than ten steps: the next save waits
  EXPECT_EQ(steady_goodput(costs, 10, kNoFailures), 20.0 / 35);
  EXPECT_EQ(steady_goodput(costs, 20, kNoFailures), 40.0 / 45);
}

TEST(Goodput, FreeSavesAreMadeAfterEveryStep) {
  const SaveCosts costs{.step = 2, .restart = 100};
  EXPECT_EQ(best_interval(costs, 5000, 1000), 1);
  // In the limit of short steps only restarts cost: exp(-R / M).
  const SaveCosts fine{.step = 1e-6, .restart = 100};
  EXPECT_NEAR(steady_goodput(fine, 1, 5000), std::exp(-100.0 / 5000), 1e-9);
}

// Daly's expected total time, M e^(R/M) (e^((t + d)/M) - 1) for t seconds of work.
TEST(Goodput, SteadyStateIsDalysTotalTime) {
  const SaveCosts costs{.step = 10, .stall = 50, .restart = 600};
  const double mean = 4 * kHours, work = 900;
  const double total = mean * std::exp(600 / mean) * std::expm1((work + 50) / mean);
  EXPECT_NEAR(steady_goodput(costs, 90, mean), work / total, 1e-12);
}

TEST(Goodput, TheBestIntervalIsBetterThanAllOthers) {
  for (const double tail : {0.0, 700.0}) {
    const SaveCosts costs{.step = 7, .stall = 40, .tail = tail, .detect = 100, .restart = 500};
    const int64_t best = best_interval(costs, 3 * kHours, 100'000);
    for (int64_t interval = 1; interval <= 3000; ++interval)
      ASSERT_LE(steady_goodput(costs, interval, 3 * kHours), steady_goodput(costs, best, 3 * kHours))
          << interval;
    EXPECT_NEAR(static_cast<double>(best) * 7, std::max(tail, daly_interval(40, 3 * kHours)), 0.01 * 7 * 100);
  }
}

FailingRun endless_spares(const SaveCosts& costs, int64_t interval, double mean, int64_t steps) {
  FailingRun run;
  run.costs = costs;
  run.meshes = {{100, costs.step}};
  run.steps = steps;
  run.interval = interval;
  run.node_mtbf = 100 * mean;
  run.spares = 1000;
  run.repair = 0;
  return run;
}

TEST(Goodput, SimulationAgreesWithTheClosedForm) {
  for (const double tail : {0.0, 300.0})
    for (const double mean : {kHours, 8 * kHours})
      for (const int64_t interval : {50, 400}) {
        const SaveCosts costs{.step = 6, .stall = 30, .tail = tail, .detect = 200, .restart = 400};
        const RunForecast forecast = forecast_failures(endless_spares(costs, interval, mean, 500'000), 7, 40);
        EXPECT_NEAR(forecast.seconds.goodput(), steady_goodput(costs, interval, mean), 0.004)
            << tail << " " << mean << " " << interval;
        EXPECT_TRUE(forecast.ended);
        EXPECT_EQ(forecast.seconds.waiting, 0);
        EXPECT_NEAR(forecast.seconds.work, 3e6, 1e-3);
        EXPECT_NEAR(forecast.failures, forecast.seconds.all() / (mean + 200), 0.02 * forecast.failures);
      }
}

TEST(Goodput, ARunWithoutFailuresIsExact) {
  FailingRun run = endless_spares({.step = 2, .stall = 5}, 10, kNoFailures, 95);
  // Ten saves, the last after five steps.
  const RunOutcome blocking = simulate_failures(run, 1, 0);
  EXPECT_DOUBLE_EQ(blocking.seconds.all(), 95 * 2 + 10 * 5);
  EXPECT_DOUBLE_EQ(blocking.seconds.saving, 50);
  EXPECT_EQ(blocking.failures, 0);
  // In the background, 30 s: every save but the first waits 10 s for the one before, the last one, after five steps, 20 s;
  // and the end waits for the last.
  run.costs.tail = 30;
  EXPECT_DOUBLE_EQ(simulate_failures(run, 1, 0).seconds.all(), 95 * 2 + 10 * 5 + 8 * 10 + 20 + 30);
}

TEST(Goodput, TrialsRepeatAndDiffer) {
  const FailingRun run = endless_spares({.step = 6, .stall = 30, .restart = 400}, 50, kHours, 5000);
  EXPECT_EQ(simulate_failures(run, 3, 0).seconds.all(), simulate_failures(run, 3, 0).seconds.all());
  EXPECT_NE(simulate_failures(run, 3, 0).seconds.all(), simulate_failures(run, 3, 1).seconds.all());
  EXPECT_NE(simulate_failures(run, 3, 0).seconds.all(), simulate_failures(run, 4, 0).seconds.all());
}

// Without spares each failure waits for a whole repair, and only one node is ever broken.
TEST(Goodput, WithoutSparesARunWaitsForRepairs) {
  FailingRun run = endless_spares({.step = 6, .stall = 30, .restart = 400}, 50, 5 * kHours, 5000);
  run.spares = 0;
  run.repair = 2 * kHours;
  for (int64_t trial = 0; trial < 20; ++trial) {
    const RunOutcome outcome = simulate_failures(run, 3, trial);
    EXPECT_NEAR(outcome.seconds.waiting, static_cast<double>(outcome.failures) * 2 * kHours, 1e-6);
  }
  run.spares = 1;
  run.repair = 0;
  EXPECT_EQ(simulate_failures(run, 3, 0).seconds.waiting, 0);
}

// A mesh of half the nodes at half the speed: the run computes on it until the repair, and returns without losing work.
TEST(Goodput, ShrinkingIsCountedByHand) {
  FailingRun run = endless_spares({.step = 6, .stall = 30, .restart = 400}, 50, 40 * kHours, 20'000);
  run.spares = 0;
  run.repair = 5 * kHours;
  run.meshes.push_back({50, 12});
  int64_t seen = 0;
  for (int64_t trial = 0; trial < 50; ++trial) {
    const RunOutcome outcome = simulate_failures(run, 5, trial);
    EXPECT_EQ(outcome.seconds.waiting, 0);
    // One failure and two restarts: after it, and for the larger mesh. Between them the slower mesh computes until the
    // first save after the repair: 5 h less a restart, to the next multiple of 50 steps and a save.
    if (outcome.failures != 1 || outcome.seconds.down != 2 * 400) continue;
    ++seen;
    const double periods = std::ceil((5 * kHours - 400) / (50 * 12 + 30));
    EXPECT_NEAR(outcome.seconds.slower, periods * 50 * 6, 1e-6);
    EXPECT_LT(outcome.seconds.lost, 50 * 6 + 30);
  }
  EXPECT_GT(seen, 5);
}

TEST(Goodput, ShrinkingPaysForLongRepairsOnly) {
  FailingRun waits = endless_spares({.step = 6, .stall = 30, .restart = 400}, 50, 20 * kHours, 100'000);
  waits.spares = 0;
  waits.repair = 24 * kHours;
  FailingRun shrinks = waits;
  shrinks.meshes.push_back({90, 7});
  const auto goodput = [](const FailingRun& run) { return forecast_failures(run, 1, 30).seconds.goodput(); };
  EXPECT_GT(goodput(shrinks), goodput(waits) + 0.2);
  waits.repair = shrinks.repair = 60;
  EXPECT_LT(goodput(shrinks), goodput(waits));
}

TEST(Goodput, ARunThatMakesNoHeadwayIsGivenUp) {
  const FailingRun run = endless_spares({.step = 60, .stall = 30, .restart = 600}, 100, 300, 1000);
  const RunForecast forecast = forecast_failures(run, 1, 100);
  EXPECT_FALSE(forecast.ended);
  EXPECT_LT(forecast.seconds.goodput(), 0.05);
  EXPECT_NEAR(forecast.seconds.lost + forecast.seconds.down, forecast.seconds.all(), 1);
}

// With a step longer than the mean time between failures, and nothing else that takes time, a run ends after very many
// failures.
TEST(Goodput, ARunWithVeryManyFailuresIsGivenUp) {
  const FailingRun run = endless_spares({.step = 1}, 1, 0.5, 1'000'000);
  const RunForecast forecast = forecast_failures(run, 1, 1'000'000);
  EXPECT_FALSE(forecast.ended);
  EXPECT_EQ(forecast.trials, 1);
  EXPECT_EQ(forecast.failures, kMostFailures + 1);
}

TEST(Goodput, VeryManyFailuresNeedFewTrials) {
  // About 50,000 failures a trial.
  const RunForecast forecast = forecast_failures(endless_spares({.step = 1}, 1, 4, 200'000), 1, 1'000'000);
  EXPECT_TRUE(forecast.ended);
  EXPECT_NEAR(static_cast<double>(forecast.trials), 20, 4);
  EXPECT_NEAR(forecast.seconds.goodput(), steady_goodput({.step = 1}, 1, 4), 0.004);
}

TEST(Goodput, ARunThatEndsIsBetterThanOneThatDoesNot) {
  RunForecast ends, does_not;
  ends.seconds = {.work = 1, .waiting = 99};
  does_not.seconds = {.work = 1, .lost = 9};
  does_not.ended = false;
  EXPECT_TRUE(is_worse(does_not, ends));
  EXPECT_FALSE(is_worse(ends, does_not));
}

// A mesh of fewer ranks whose step is shorter makes no step of the run shorter than planned.
TEST(Goodput, AFasterSmallerMeshIsNoGain) {
  PlannedTraining training;
  training.step = 2;
  training.steps = 100'000;
  training.ranks = 8;
  training.smaller = {{4, {4, 1}}};
  GoodputConfig config;
  config.mtbf = 100;
  config.save_seconds = 5;
  config.repair_hours = 100;
  config.goodput_trials = 20;
  const GoodputReport report = make_goodput(config, training);
  for (const GoodputRow& row : report.rows) {
    EXPECT_LT(row.shrinking.seconds.goodput(), 1);
    EXPECT_EQ(row.shrinking.seconds.slower, 0);
  }
  EXPECT_EQ(report.smaller[0].mesh.step, 1);
}

// ---- Published runs. The bounds follow from what their logs say; nothing is fitted. ----

// Llama 3 405B (arXiv 2407.21783, 3.3.4): 419 unexpected interruptions in 54 days, 2 TB/s of storage, effective training
// time above 90 %. With 14 bytes a weight a save takes 3 s. So restarts took at most a quarter of an hour: with ten
// minutes the model exceeds 90 %, and with twenty no interval reaches it.
TEST(Goodput, IsConsistentWithTheLogOfLlama3) {
  const double mean = 54 * kDays / 419;
  EXPECT_NEAR(mean / kHours, 3.1, 0.05);
  const auto best = [&](double restart) {
    const SaveCosts costs{.step = 6, .stall = 405e9 * 14 / 2e12, .restart = restart};
    return steady_goodput(costs, best_interval(costs, mean, 10'000), mean);
  };
  EXPECT_GT(best(10 * kMinute), 0.90);
  EXPECT_LT(best(20 * kMinute), 0.90);
  // All 466 interruptions at ten minutes would still leave 90 %.
  const SaveCosts costs{.step = 6, .stall = 3, .restart = 10 * kMinute};
  EXPECT_GT(steady_goodput(costs, 45, 54 * kDays / 466), 0.90);
}

// OPT-175B (arXiv 2205.01068 and metaseq's chronicles): about two machines a day fail of 124, 33 days of computation
// take 56, and the failures cost 178,000 GPU hours of 992 GPUs (as quoted in GEMINI, SOSP 2023), which is 13 % of the
// time. The model reaches those 13 % with restarts between a quarter of an hour and two hours, as of operators who are
// called, and stays above the 59 % of all causes (which include divergences, a holiday and a deleted cluster).
TEST(Goodput, IsConsistentWithTheLogOfOpt) {
  const double by_failures = 1 - 178'000.0 / 992 / (56 * 24), by_all_causes = 33.0 / 56;
  const double mean = kDays / 2;
  const auto best = [&](double restart) {
    const SaveCosts costs{.step = 20, .stall = 60, .restart = restart};
    return steady_goodput(costs, best_interval(costs, mean, 10'000), mean);
  };
  EXPECT_GT(best(15 * kMinute), by_failures);
  EXPECT_LT(best(2 * kHours), by_failures);
  EXPECT_GT(best(2 * kHours), by_all_causes);
}

// BLOOM (bigscience, chronicles of tr11-176B): 2.3 TB in 40 s every 100 iterations costs 0.37 % of the time, and 48
// nodes fail about once a week.
TEST(Goodput, IsConsistentWithTheLogOfBloom) {
  const SaveCosts costs{.step = 105, .stall = 40, .restart = 30 * kMinute};
  EXPECT_NEAR(1 - steady_goodput(costs, 100, kNoFailures), 0.0037, 0.0002);
  EXPECT_GT(steady_goodput(costs, 100, 7 * kDays), 0.97);
}

// MegaScale (arXiv 2402.15627, 6.3): over 100 restarts in several weeks, failures found within ten minutes and caught up
// within fifteen, effective training time above 90 %.
TEST(Goodput, IsConsistentWithTheLogOfMegaScale) {
  const double mean = 3 * 7 * kDays / 100;
  const SaveCosts costs{.step = 6, .stall = 5, .detect = 10 * kMinute, .restart = 7 * kMinute};
  EXPECT_GT(steady_goodput(costs, 150, mean), 0.90);  // a save every quarter of an hour: 7.5 min are lost
}

// ---- Planned runs ----

PlanConfig gpt3_on_failing_nodes() {
  PretrainConfig run = gpt_of({96, 12288, 96, 2048, 51200}, 1536);
  run.mesh.tensor_model_parallel_size = 8;
  run.mesh.pipeline_model_parallel_size = 16;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 1536;
  run.precision.bf16 = true;
  PlanConfig config;
  config.run = run;
  config.hardware = "h100";
  config.goodput.mtbf = 5000;
  config.goodput.storage_gbps = 200;
  config.goodput.goodput_trials = 20;
  return config;
}

GoodputReport goodput_of(const PlanConfig& config) {
  const PlannedRun planned = plan_run(config.run);
  const PlannedMachine machine = planned_machine(config);
  return make_goodput(config, planned, machine, plan_outcome(planned, machine).step_seconds);
}

TEST(Goodput, ReportsAPlannedRun) {
  PlanConfig config = gpt3_on_failing_nodes();
  config.run.checkpoint.save_interval = 70;
  config = resolve(config);
  const GoodputReport report = goodput_of(config);
  EXPECT_EQ(report.nodes, 192);
  EXPECT_DOUBLE_EQ(report.mtbf, 5000 * kHours / 192);
  // Weights and two moments of Adam in f32.
  EXPECT_NEAR(report.checkpoint.all, 12 * 174.6e9, 12 * 0.1e9);
  EXPECT_DOUBLE_EQ(report.costs.stall, report.checkpoint.all / 200e9);
  EXPECT_EQ(report.costs.tail, 0);
  EXPECT_EQ(report.costs.detect, 300);  // --timeout-floor-seconds
  EXPECT_FALSE(report.steps_are_given);
  EXPECT_NEAR(static_cast<double>(report.steps) * report.costs.step, 30 * kDays, report.costs.step);
  // 1536 samples divide among 8 and 6 replicas of 16 nodes.
  ASSERT_EQ(report.smaller.size(), 2U);
  EXPECT_EQ(report.smaller[0].data, 8);
  EXPECT_EQ(report.smaller[0].mesh.nodes, 128);
  EXPECT_GT(report.smaller[0].mesh.step, 1.3 * report.costs.step);
  EXPECT_EQ(report.smaller[1].data, 6);
  bool has_save_interval = false;
  for (const GoodputRow& row : report.rows) {
    has_save_interval = has_save_interval || (row.is_save_interval && row.interval == 70);
    EXPECT_LE(row.best().seconds.goodput(), report.rows[report.best].best().seconds.goodput());
  }
  EXPECT_TRUE(has_save_interval);
  // Two failures in three days, and repairs of a day: without spares the run waits or shrinks for much of the time.
  EXPECT_LT(report.rows[report.best].waiting.seconds.goodput(), 0.7);
  EXPECT_GT(report.rows[report.best].shrinking.seconds.slower, 0);
}

TEST(Goodput, SparesAndBackgroundSavesHelp) {
  PlanConfig config = gpt3_on_failing_nodes();
  config.goodput.spare_nodes = 12;
  const GoodputReport blocking = goodput_of(resolve(config));
  config.run.checkpoint.save = "run";
  config.run.checkpoint.async_save = true;
  const GoodputReport background = goodput_of(resolve(config));
  EXPECT_EQ(background.costs.tail, blocking.costs.stall);
  EXPECT_LT(background.costs.stall, blocking.costs.stall);
  EXPECT_DOUBLE_EQ(background.costs.stall, background.checkpoint.rank / 10e9);
  const auto best = [](const GoodputReport& report) {
    return report.rows[report.best].best().seconds.goodput();
  };
  EXPECT_GT(best(background), best(blocking));
  EXPECT_GT(best(blocking), 0.9);
  EXPECT_NEAR(best(blocking), blocking.rows[blocking.best].steady, 0.02);
}

TEST(Goodput, TheRunsOwnLengthIsForecast) {
  PlanConfig config = gpt3_on_failing_nodes();
  config.goodput.spare_nodes = 12;
  config.run.batch.train_iters = 1000;
  config.run.checkpoint.no_save_optim = true;
  const GoodputReport report = goodput_of(resolve(config));
  EXPECT_TRUE(report.steps_are_given);
  EXPECT_EQ(report.steps, 1000);
  EXPECT_NEAR(report.checkpoint.all, 4 * 174.6e9, 4 * 0.1e9);
  EXPECT_NEAR(report.rows[0].waiting.seconds.work, 1000 * report.costs.step, 1e-3);
  // A given length counts, whatever it is.
  config.run.batch.train_iters = 1;
  EXPECT_FALSE(goodput_of(resolve(config)).steps_are_given);
  config.length_given = true;
  const GoodputReport one = goodput_of(resolve(config));
  EXPECT_TRUE(one.steps_are_given);
  EXPECT_EQ(one.steps, 1);
  // Passes are as many steps as the data have, which are not read.
  config.length_given = false;
  config.run.batch.train_epochs = 3;
  const GoodputReport passes = goodput_of(resolve(config));
  EXPECT_FALSE(passes.steps_are_given);
  EXPECT_EQ(passes.epochs, 3);
}

// 840 samples divide among 7 replicas, which need all four nodes, among 6 and 5, which need three, and among 4.
TEST(Goodput, SmallerMeshesNeedFewerNodesEach) {
  PretrainConfig run = gpt_of({2, 64, 4, 32, 128}, 8);
  run.mesh.ranks_per_node = 2;
  run.batch.global_batch_size = 840;
  run.batch.micro_batch_size = 1;
  PlanConfig config;
  config.run = run;
  config.goodput.mtbf = 5000;
  config.goodput.save_seconds = 1;
  config.goodput.goodput_trials = 1;
  const GoodputReport report = goodput_of(resolve(config));
  ASSERT_EQ(report.smaller.size(), 2U);
  EXPECT_EQ(report.smaller[0].data, 6);
  EXPECT_EQ(report.smaller[0].mesh.nodes, 3);
  EXPECT_EQ(report.smaller[1].data, 4);
  EXPECT_EQ(report.smaller[1].mesh.nodes, 2);
  config.run.mesh.ranks_per_node = 8;
  EXPECT_TRUE(goodput_of(resolve(config)).smaller.empty());
}

TEST(Goodput, OptionsThatCannotWorkAreRefused) {
  PlanConfig config = gpt3_on_failing_nodes();
  config.goodput.save_seconds = 30;
  EXPECT_NE(refusal([&] { resolve(config); }).find("--storage-gbps"), std::string::npos);
  config = gpt3_on_failing_nodes();
  config.goodput.storage_gbps.reset();
  EXPECT_NE(refusal([&] { resolve(config); }).find("--save-seconds"), std::string::npos);
  config = gpt3_on_failing_nodes();
  config.goodput.save_stall_seconds = 1;
  EXPECT_NE(refusal([&] { resolve(config); }).find("--async-save"), std::string::npos);
  config = gpt3_on_failing_nodes();
  config.hardware.reset();
  EXPECT_NE(refusal([&] { resolve(config); }).find("--ranks-per-node"), std::string::npos);
  config = gpt3_on_failing_nodes();
  config.goodput.mtbf.reset();
  EXPECT_NE(refusal([&] { resolve(config); }).find("--mtbf"), std::string::npos);
  config = gpt3_on_failing_nodes();
  config.goodput.mtbf = 0;
  EXPECT_NE(refusal([&] { resolve(config); }).find("--mtbf"), std::string::npos);
}

}  // namespace
}  // namespace trifold::test
