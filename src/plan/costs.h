// What the parts of a step cost in seconds on one rank, for the simulator: from counts and rates, from the
// figures of a device (--hardware), or from the times that `bench --what blocks` measured.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "config/fields/config.h"
#include "layout/cut_model.h"
#include "models/model.h"
#include "plan/hardware_forecast.h"
#include "schedule/simulate.h"

namespace trifold {

// One micro-batch through one block.
struct BlockSeconds {
  double f = 0;
  double i = 0;
  double w = 0;
  double b = 0;  // of a whole backward, which may be less than i + w; 0: i + w

  double whole_backward() const { return b > 0 ? b : i + w; }
};

struct PlanCosts {
  std::vector<BlockSeconds> blocks;  // of the model, in order
  double message_latency = 0;        // seconds
  double bytes_per_second = 0;       // between stages, and between copies of the model
  double update_seconds = 0;         // of one parameter
  double waited_message = 0;         // a stage waits so long for a message that nothing hides
  std::optional<HardwareForecast>
      forecast;  // of --hardware: what a stage does once a step is its once_seconds
};

// `model` is that of config.run on one place of its mesh. BadInput for a --costs file that cannot be read or
// was measured with other sizes.
PlanCosts make_plan_costs(const PlanConfig& config, const Model& model);

// The costs for which --schedule auto is made: those of --schedule-costs, or else what is counted with the
// defaults of `trifold plan`. Depends on `run` and that file alone, so all ranks and `trifold plan` make one
// schedule. BadInput as above.
PlanCosts make_schedule_costs(const PretrainConfig& run, const Model& model);

// What the stages compute and the messages between them take.
CostModel computing_costs(const PretrainConfig& run, const CutModel& model, const PlanCosts& costs);

// Bytes that a rank sends over the tensor axis for one micro-batch in one block, forward and backward.
std::vector<double> tensor_bytes(const PretrainConfig& config, const Model& model);

// The same over the context axis.
std::vector<double> context_bytes(const PretrainConfig& config, const Model& model);

// Bytes of one activation [R, C] as this rank holds it between stages.
size_t boundary_bytes(const PretrainConfig& config);

// Seconds in which `ranks` ranks sum `bytes` in a ring.
double ring_seconds(double bytes, int ranks, double bytes_per_second, double latency);

}  // namespace trifold
