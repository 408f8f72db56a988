// Costs of the parts of a step for the simulator, in seconds on one rank. They are computed from counts of operations
// and rates, from the data of a device (--hardware), or from times measured by `bench --what blocks`.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "layout/cut_model.h"
#include "layout/run_spec.h"
#include "models/model_walk.h"
#include "ops/counting.h"
#include "plan/forecast/hardware_forecast.h"
#include "plan/forecast/work_cost.h"
#include "schedule/simulate.h"

namespace trifold {

// Seconds of one micro-batch in one block: forward (f), gradients of the input (i), gradients of the weights (w).
struct BlockSeconds {
  double f = 0;
  double i = 0;
  double w = 0;
  double b = 0;  // a whole backward, which may take less than i + w; 0: i + w
  // The parts of f, i and w in which only experts' rows are exchanged, as far as the other half of a pair can overlap
  // with them. 0 for measured times, which do not distinguish them.
  double f_rows = 0, i_rows = 0, w_rows = 0;
  // The parts of f, i and w in which the rank waits for collectives. 0 for measured times.
  double f_calls = 0, i_calls = 0, w_calls = 0;

  double whole_backward() const { return b > 0 ? b : i + w; }
  BlockSeconds times(double factor) const { return {factor * f, factor * i, factor * w, factor * b}; }
};

// Seconds that a stage waits for collectives in one micro-batch, and in its update; parts of its StageCost.
struct StageCalls {
  double f = 0, i = 0, w = 0;
  double step = 0;
};

// Seconds of a block's exchanges over the context axis in one micro-batch. `hidden` ones overlap with attention;
// `exposed` ones do not, and are included in the block's f and i.
struct ContextSeconds {
  double hidden = 0;
  double exposed = 0;
};

struct PlanCosts {
  std::vector<BlockSeconds> blocks;     // blocks of the model, in order
  std::vector<ContextSeconds> context;  // same order; empty if measured as a part of `blocks`
  double message_latency = 0;           // seconds
  double bytes_per_second = 0;          // between stages, and between copies of the model
  double update_seconds = 0;            // per parameter
  double waited_message = 0;            // seconds that a stage waits for a message that is not overlapped
  std::optional<HardwareForecast>
      forecast;  // with --hardware; its once_seconds gives the once-per-step work of a stage
};

// The costs of `run` for `model`, its model cut for one position in the mesh. BadInput for a --costs file that cannot
// be read or was measured with other sizes. `costs` as in make_forecast.
PlanCosts make_plan_costs(const RunSpec& run, const PlannedMachine& machine, const CutModel& model,
                          CostsOfModel* costs = nullptr);

// The costs for which --schedule auto is optimised: from the file of --schedule-costs, or else from counts at the
// default rates of `trifold plan`. They depend only on `run` and that file, so all ranks and `trifold plan` get the
// same schedule. BadInput for a file as in make_plan_costs.
PlanCosts make_schedule_costs(const RunSpec& run, const CutModel& model);

// The times of computation in each stage and of messages between stages.
CostModel computing_costs(const RunSpec& run, const CutModel& model, const PlanCosts& costs);

// What of these times each stage waits for collectives, without its update.
std::vector<StageCalls> waited_calls(const CutModel& model, const PlanCosts& costs);

// The work of every block for one micro-batch on the first rank. `load` as in WorkLog.
WalkedModel walk_run(const RunSpec& run, const Model& model, double load = 1,
                     FusedOps fused = FusedOps::None);
// Prices of flops and bytes at the rates of a machine.
std::unique_ptr<WorkPrices> rate_prices(const PlannedMachine& machine);

// Bytes that a rank sends in each block for one micro-batch, forward and backward: over the tensor axis, over the
// context axis, and to the ranks over which its experts are sharded. `load` as in WorkLog; if it is above 1, `experts`
// counts the bytes that the busiest of these ranks receives.
struct SentBytes {
  std::vector<double> tensor, context, experts;
};
SentBytes sent_bytes(const RunSpec& run, const Model& model, double load = 1);

// Bytes of a rank's part of an activation [R, C] that is sent between stages.
size_t boundary_bytes(const RunSpec& run);

// Seconds of a ring all-reduce of `bytes` over `ranks` ranks; 0 for a single rank.
double ring_seconds(double bytes, int ranks, double bytes_per_second, double latency);

}  // namespace trifold
