// Forecast of a configuration's step from the figures of a device: `trifold plan --hardware`.
#pragma once

#include "layout/run_spec.h"
#include "models/model.h"
#include "plan/forecast/planned_machine.h"
#include "plan/forecast/step_time.h"

namespace trifold {

struct HardwareForecast {
  Hardware hardware;
  Software software;
  Workload work;
  BlockCosts costs;
  StepTime closed_form;

  // Whether a rank that needs `bytes` bytes fits the device.
  bool fits(size_t bytes) const { return static_cast<double>(bytes) <= hardware.usable_bytes(); }
};

// `machine` must have its hardware; `model` is that of `run`, cut as it says. `costs`, if given, knows those of this machine
// and of other layouts of the model.
HardwareForecast make_forecast(const RunSpec& run, const PlannedMachine& machine, const Model& model,
                               CostsOfModel* costs = nullptr);

// The once-per-step work of a stage with `weights` (on one tensor rank).
struct OnceSeconds {
  double reduce = 0;  // sums of gradients, which may overlap with the last backward
  double step = 0;    // the work after the last backward
};
// `each`: gradients are reduced after each micro-batch; `reduce` is then per micro-batch.
OnceSeconds once_seconds(const HardwareForecast& forecast, const HeldWeights& weights, bool each);

// Seconds in which `ranks` neighbouring pipeline ranks sum `bytes`.
double tied_sum_seconds(const HardwareForecast& forecast, double bytes);

}  // namespace trifold
