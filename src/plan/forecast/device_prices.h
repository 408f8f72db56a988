// Seconds of recorded work (ops/counting.h) on a device that is described by figures, as a program computes it.
#pragma once

#include <memory>
#include <string_view>

#include "layout/run_spec.h"
#include "ops/counting.h"
#include "plan/forecast/hardware.h"
#include "plan/forecast/software.h"
#include "plan/forecast/work_cost.h"

namespace trifold {

// Devices have fused kernels for operations that a processor composes.
inline bool is_device(const Hardware& hardware) { return hardware.processors > 1; }

// Whether the name of an operation begins so: "affine" also names affine_backward_weight.
inline bool is_named(const Work& work, std::string_view begin) {
  return std::string_view(work.name).starts_with(begin);
}

// The operations that a program computes in one kernel on a device, and the prices of its work. `hardware` and
// `software` must outlive the prices.
FusedOps fused_ops(const Hardware& hardware, const Software& software, const RunSpec& run);
std::unique_ptr<WorkPrices> device_prices(const Hardware& hardware, const Software& software,
                                          const RunSpec& run);

}  // namespace trifold
