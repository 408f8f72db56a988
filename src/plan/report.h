// Forecast of a configuration on a whole mesh: stages, plan, time, memory and traffic of every pipeline rank. No rank
// is started and nothing of the model is allocated.
//
// The work of each block is recorded by walking its layers (models/model_walk.h). It is priced in one of three ways:
// matrix-product flops at a given rate and bytes at given bandwidths, with ring collectives (2 (n-1)/n of the bytes of
// an all-reduce, 2 (n-1) latencies); a device's figures (plan/forecast); or a benchmark's measured times. Tensor
// collectives do not overlap with computation; exchanges over the context axis overlap as far as their streams allow;
// gradient reduction overlaps as the plan arranges it. Memory is exact: each rank's plan is dry-run. References: arXiv
// 2104.04473 (flops, traffic), 2205.05198 (sequence parallel), 2401.10241 (split I and W).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "layout/memory_report.h"
#include "layout/stage_report.h"
#include "pipeline/stage_memory.h"
#include "plan/costs.h"
#include "plan/forecast/hardware_forecast.h"
#include "plan/pictures/step_svg.h"
#include "plan/planned_run.h"
#include "schedule/automatic.h"
#include "schedule/check.h"
#include "schedule/simulate.h"

namespace trifold {

// Bytes that one rank sends in a step.
struct TrafficReport {
  double tensor = 0;
  double context = 0;
  double experts = 0;  // if tokens choose all experts equally often
  double pipeline = 0;
  double data = 0;
  double offloaded = 0, fetched = 0;  // activations, written to files and read back
};

// Bytes per step that the busiest of the ranks that share experts receives, with either kind of dispatch
// (nn/exchanged_rows.h), on the pipeline rank that receives most.
struct ExpertReport {
  double load = 1;  // rows of the busiest rank, relative to the mean: --moe-load-imbalance
  int64_t rounds = 1;
  bool gathers = false;  // whether this plan dispatches by all-gather
  double all_to_all = 0, all_gather = 0;
};

// The cost of one policy of gradient reduction, on the pipeline rank where it is highest.
struct ReductionReport {
  ReducePolicy policy = ReducePolicy::Once;
  bool chosen = false;   // whether this configuration uses it
  size_t gradients = 0;  // bytes held
  size_t total = 0;      // bytes of everything held
  double sent = 0;       // bytes over the data axis in a step
};

struct PlanReport {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int experts = 1, expert_parts = 1;  // ranks of a stage that share the experts; ranks that cut each expert
  std::string experts_text;           // experts_text of mesh/mesh.h for these
  std::optional<ExpertReport> dispatch;    // if ranks share experts
  int64_t parameters = 0;                  // parameters of the model; tied ones count once
  std::vector<std::string> param_factors;  // what --lr-mult and --wd-mult match, a line each
  std::string schedule;
  std::optional<AutomaticChoice> automatic;  // for --schedule auto
  int stages_per_rank = 1;
  int micros = 0;   // micro-batches of a global batch
  int batches = 1;  // global batches in the simulation: more than one for an asynchronous schedule
  std::vector<StageReport> stages;
  std::vector<MemoryReport> memory;    // [pipeline rank]
  std::vector<TrafficReport> traffic;  // [pipeline rank]
  // [pipeline rank] Seconds of the exchanges over the context axis in a step; empty if unknown.
  std::vector<ContextSeconds> exchanges;
  // Both policies, if gradients are sharded and the options leave a choice; else empty.
  std::vector<ReductionReport> reductions;
  double step_seconds = 0;                   // per global batch
  double flops = 0;                          // model flops per step, see SampleFlops
  double mfu = 0;                            // flops / (step_seconds x ranks x peak rate)
  double peak_flops = 0;                     // per rank: --peak-gflops, or the peak of --hardware
  std::optional<HardwareForecast> forecast;  // with --hardware
  int64_t tokens = 0;                        // tokens per step
  // Bytes of the keys and values of a text as long as a sample, on each tensor rank that continues it (nn/key_cache.h);
  // 0 if the model continues no texts, or without such a cache.
  size_t key_cache_bytes = 0;
  Plan plan;
  Plan computation;  // as generated or read, before it is completed; pairs are still marked
  // `pairs`: pairs of a forward and a backward in the order (OVERLAP_F_B). `turns`: pairs whose halves alternate in
  // the plan; the others run one after the other. `seconds_without_turns`: the time of a step if none alternated.
  // `overlapped_seconds`: the time of a step if ranks computed both halves at once, a pair taking as long as its longer
  // half; absent if the order makes that impossible.
  int pairs = 0;
  int turns = 0;
  double seconds_without_turns = 0;
  std::optional<double> overlapped_seconds;
  CostModel costs;                // what the simulation assumes
  std::vector<StageCalls> calls;  // [stage] the parts of `costs` in which a rank waits for collectives
  Simulation simulation;
};

// A cache of the activation memory of plan rows. Plans of one configuration that differ only in ZeRO or in reductions
// share many rows, and dry runs take most of the time of a plan.
class CountedActivations {
 public:
  // The activations of `row` on a pipeline rank, from the cache or from `count`; valid until the next call.
  const ActivationMemory& of(int rank, const RankPlan& row, FunctionRef<ActivationMemory()> count);

 private:
  std::map<int, std::vector<std::pair<RankPlan, ActivationMemory>>> known_;  // [pipeline rank]
};

// BadInput for mistakes in a file of measured times.
PlanReport make_plan_report(const PlannedRun& planned, const PlannedMachine& machine,
                            CountedActivations* counted = nullptr);

// The title of the picture of a plan's simulated step.
PictureText picture_text(const PlanReport& report);

// The main results of a plan, without picture, comparisons and checks: for searches, which make many.
struct PlanOutcome {
  double step_seconds = 0;
  double bubble = 0;
  std::vector<MemoryReport> memory;  // [pipeline rank]
  std::optional<HardwareForecast> forecast;

  size_t most_bytes() const;  // on the rank that needs most
};
// `costs` as in make_forecast.
PlanOutcome plan_outcome(const PlannedRun& planned, const PlannedMachine& machine,
                         CostsOfModel* costs = nullptr);

// The memory of each pipeline rank, computed without a simulation.
struct PlannedRank {
  MemoryReport memory;
  int64_t parameters = 0;  // elements of the weights it holds before sharding
};
std::vector<PlannedRank> planned_ranks(const PlannedRun& planned, const PlannedMachine& machine = {},
                                       CountedActivations* counted = nullptr);
// One of these, without walking the others.
PlannedRank planned_rank(const PlannedRun& planned, int pipeline_rank);

}  // namespace trifold
