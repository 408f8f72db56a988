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

// `machine` must have hardware; `model` is the model of `run`, cut as it says. `costs`, if given, caches the costs of
// this machine for layouts of the model.
HardwareForecast make_forecast(const RunSpec& run, const PlannedMachine& machine, const Model& model,
                               CostsOfModel* costs = nullptr);

// Seconds of the once-per-step work of a stage on one tensor rank.
struct OnceSeconds {
  double reduce = 0;  // gradient sums, which may overlap with the last backward
  double step = 0;    // all work after the last backward
  double update = 0;  // the part of `step` in which weights are updated, without collectives
};
// `weights` are held by the stage's rank. `each`: gradients are reduced after each micro-batch; `reduce` is then per
// micro-batch.
OnceSeconds once_seconds(const HardwareForecast& forecast, const HeldWeights& weights, bool each);

// Seconds of a message of `bytes` between two pipeline ranks that sum the gradient of a tied weight.
double tied_sum_seconds(const HardwareForecast& forecast, double bytes);

}  // namespace trifold
