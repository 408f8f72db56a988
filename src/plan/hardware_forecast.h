// Forecast of a configuration's step from the figures of a device: `trifold plan --hardware`.
#pragma once

#include "config/fields/config.h"
#include "models/model.h"
#include "plan/step_time.h"

namespace trifold {

// The device and the program that a plan is for.
struct PlannedMachine {
  Hardware hardware;
  Software software;
};
// `config` must name its --hardware. BadInput for a device, a figure or an assumption that does not exist.
PlannedMachine planned_machine(const PlanConfig& config);

struct HardwareForecast {
  Hardware hardware;
  Software software;
  Workload work;
  BlockCosts costs;
  StepTime closed_form;

  // Whether a rank that holds so many bytes fits the device.
  bool fits(size_t bytes) const { return static_cast<double>(bytes) <= hardware.usable_bytes(); }
};

// `config` must be resolved and name its --hardware; `model` is that of config.run, cut as the configuration
// says. BadInput for a device, a figure or an assumption that does not exist.
HardwareForecast make_forecast(const PlanConfig& config, const Model& model);

// What a stage with `weights` weights (on one tensor rank) does once a step.
struct OnceSeconds {
  double reduce = 0;  // sums of gradients, which may run behind the last backward
  double step = 0;    // what follows the last backward
};
// `each`: gradients are reduced after each micro-batch; `reduce` is then that of one.
OnceSeconds once_seconds(const HardwareForecast& forecast, double weights, bool each);

// Seconds in which `ranks` pipeline ranks next to each other sum `bytes`.
double tied_sum_seconds(const HardwareForecast& forecast, double bytes);

}  // namespace trifold
