// Forecast of a configuration on a whole mesh, computed on one machine: stages, plan, time, memory and
// traffic of every pipeline rank. No rank is started and nothing of the model is allocated.
//
// Times come from counts: matrix-product flops at the given rate, bytes at the given bandwidth, with ring
// collectives (2 (n-1)/n of the bytes of an all-reduce, 2 (n-1) latencies); or from the times of a benchmark.
// Tensor collectives are not hidden behind computation, gradient reduction is where the plan hides it.
// A backward has twice the flops of its forward: the products of attention all fall on I, those with weights
// half on I and half on W; recomputation is done in I. Memory is exact: the plan of each rank is walked dry.
// References: arXiv 2104.04473 (flops, traffic), 2205.05198 (sequence parallel), 2401.10241 (I and W apart).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/fields/config.h"
#include "core/function_ref.h"
#include "layout/memory_report.h"
#include "layout/stage_report.h"
#include "plan/hardware_forecast.h"
#include "schedule/automatic.h"
#include "schedule/check.h"
#include "schedule/simulate.h"

namespace trifold {

// Bytes that one rank sends in a step.
struct TrafficReport {
  double tensor = 0;
  double context = 0;
  double pipeline = 0;
  double data = 0;
};

// What summing gradients after the last micro-batch, or after each, costs the pipeline rank it costs most.
struct ReductionReport {
  ReducePolicy policy = ReducePolicy::Once;
  bool chosen = false;   // by this configuration
  size_t gradients = 0;  // bytes held
  size_t total = 0;      // the same of everything
  double sent = 0;       // bytes over the data axis in a step
};

struct PlanReport {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int64_t parameters = 0;  // of the model; tied ones once
  std::string schedule;
  std::optional<AutomaticChoice> automatic;  // of --schedule auto
  int stages_per_rank = 1;
  int micros = 0;   // of one global batch
  int batches = 1;  // global batches in the simulation: more than one for an asynchronous schedule
  std::vector<StageReport> stages;
  std::vector<MemoryReport> memory;    // of each pipeline rank
  std::vector<TrafficReport> traffic;  // of each pipeline rank
  // Of both policies if gradients are sharded and there is a choice; else empty.
  std::vector<ReductionReport> reductions;
  double step_seconds = 0;                   // of one global batch
  double flops = 0;                          // model flops of one step, see Model::train_flops_per_sample
  double mfu = 0;                            // flops / (step_seconds x ranks x peak rate)
  double peak_flops = 0;                     // of a rank: --peak-gflops, or the peak of --hardware
  std::optional<HardwareForecast> forecast;  // of --hardware
  int64_t tokens = 0;                        // of one step
  Plan plan;
  Plan computation;  // as generated or read: without what was added, pairs still marked
  // Forward and backward that the order of computation pairs (OVERLAP_F_B); the plan runs them one after the
  // other. `overlapped_seconds`: what a step would take if ranks computed both at once, a pair as long as the
  // longer of the two; nothing where the order leaves that no way.
  int pairs = 0;
  std::optional<double> overlapped_seconds;
  Simulation simulation;
};

// The bytes of activations of rows that were counted before: plans of one configuration that differ in ZeRO or
// in reductions alone have many rows in common, and counting takes most of the time of a plan.
class CountedActivations {
 public:
  // Of `row` on a pipeline rank: known, or counted now.
  size_t of(int rank, const RankPlan& row, FunctionRef<size_t()> count);

 private:
  std::map<int, std::vector<std::pair<RankPlan, size_t>>> known_;  // [pipeline rank]
};

// `config` must be resolved, its vocabulary included. BadInput when a rank needs more than --memory-limit, or
// for files that are wrong.
PlanReport make_plan_report(const PlanConfig& config, CountedActivations* counted = nullptr);

// The same without a picture, comparisons and checks: what a search, and many plans at once, need.
struct PlanOutcome {
  double step_seconds = 0;
  double bubble = 0;
  std::vector<MemoryReport> memory;  // of each pipeline rank
  std::optional<HardwareForecast> forecast;

  size_t most_bytes() const;  // of the rank that needs most
};
// Says nothing of --memory-limit.
PlanOutcome plan_outcome(const PlanConfig& config);

// The memory of each pipeline rank alone, without a simulation.
struct PlannedRank {
  MemoryReport memory;
  int64_t parameters = 0;  // elements of the weights it holds if they are not sharded
};
std::vector<PlannedRank> plan_ranks(const PlanConfig& config, CountedActivations* counted = nullptr);

}  // namespace trifold
