// The costs, in seconds on one rank, of the parts of a step, for the simulator. They come from counts and rates, from a
// device's figures (--hardware), or from times measured by `bench --what blocks`.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "config/fields/config.h"
#include "layout/cut_model.h"
#include "layout/run_spec.h"
#include "models/model_walk.h"
#include "ops/counting.h"
#include "plan/forecast/hardware_forecast.h"
#include "plan/forecast/work_cost.h"
#include "schedule/simulate.h"

namespace trifold {

// One micro-batch through one block.
struct BlockSeconds {
  double f = 0;
  double i = 0;
  double w = 0;
  double b = 0;  // of a whole backward, which may be less than i + w; 0: i + w
  // The parts of f, i and w in which rows of experts travel and nothing else is computed; 0 if measured as a part of them.
  double f_rows = 0, i_rows = 0, w_rows = 0;

  double whole_backward() const { return b > 0 ? b : i + w; }
  BlockSeconds times(double factor) const { return {factor * f, factor * i, factor * w, factor * b}; }
};

// What a block's exchanges over the context axis take in one micro-batch: behind attention, and beside it. The
// latter are in the block's f and i.
struct ContextSeconds {
  double hidden = 0;
  double exposed = 0;
};

struct PlanCosts {
  std::vector<BlockSeconds> blocks;     // of the model, in order
  std::vector<ContextSeconds> context;  // of the same blocks; empty if measured as a part of them
  double message_latency = 0;           // seconds
  double bytes_per_second = 0;          // between stages, and between copies of the model
  double update_seconds = 0;            // of one parameter
  double waited_message = 0;            // seconds that a stage waits for a message that is not overlapped
  std::optional<HardwareForecast>
      forecast;  // of --hardware; its once_seconds gives the once-per-step work of a stage
};

// `model` is that of `run` for one position in its mesh. BadInput for a --costs file that cannot be read or was measured
// with other sizes. `costs` as in make_forecast.
PlanCosts make_plan_costs(const RunSpec& run, const PlannedMachine& machine, const CutModel& model,
                          CostsOfModel* costs = nullptr);

// The costs for which --schedule auto is optimised: those of --schedule-costs, or else counts at the default rates of
// `trifold plan`. They depend only on `run` and that file, so all ranks and `trifold plan` get the same schedule.
// BadInput as above.
PlanCosts make_schedule_costs(const RunSpec& run, const CutModel& model);

// The times of computation in the stages and of messages between them.
CostModel computing_costs(const RunSpec& run, const CutModel& model, const PlanCosts& costs);

// What the blocks of a run do with one micro-batch on the first rank. `load` as in WorkLog.
WalkedModel walk_run(const RunSpec& run, const Model& model, double load = 1,
                     FusedOps fused = FusedOps::None);
// Prices of flops and bytes at the rates of a machine.
std::unique_ptr<WorkPrices> rate_prices(const PlannedMachine& machine);

// Bytes that a rank sends for one micro-batch in each block, forward and backward: over the tensor axis, over the context
// axis, and to the ranks that share its experts. `load` as in WorkLog; if it is above 1, the last are what the busiest of
// these ranks gets.
struct SentBytes {
  std::vector<double> tensor, context, experts;
};
SentBytes sent_bytes(const RunSpec& run, const Model& model, double load = 1);

// Bytes of one activation [R, C] as this rank holds it between stages.
size_t boundary_bytes(const RunSpec& run);
// Those of `numbers` numbers for each row, which a message may have in addition.
size_t row_number_bytes(const RunSpec& run, int numbers);

// Seconds in which `ranks` ranks sum `bytes` in a ring.
double ring_seconds(double bytes, int ranks, double bytes_per_second, double latency);

}  // namespace trifold
