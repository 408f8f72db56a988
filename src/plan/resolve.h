// Resolves the options of `trifold plan` into the values with which plans are made.
#pragma once

#include "config/fields/config.h"
#include "plan/forecast/planned_machine.h"

namespace trifold {

// `config` must be resolved. BadInput for a device, a figure or an assumption that does not exist.
PlannedMachine planned_machine(const PlanConfig& config);

}  // namespace trifold
