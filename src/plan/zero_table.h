// The memory of parameters, gradients and optimizer state on a rank under each ZeRO stage: the memory that this engine
// would allocate, and the formula of Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter
// models" (SC 2020), section 3.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/memory_report.h"
#include "plan/report.h"

namespace trifold {

struct ZeroBytes {
  double parameters = 0, gradients = 0, optimizer = 0;
  double all() const { return parameters + gradients + optimizer; }
};

// The paper's formula for a rank with Psi = `parameters` and `shared` ranks that shard. With weights and gradients of w
// bytes each and k bytes of optimizer state per parameter, stage 0 takes (2 w + k) Psi; stage 1 divides k by `shared`,
// stage 2 also the w of gradients, stage 3 also the w of weights.
ZeroBytes zero_formula(int stage, double parameters, int shared, double weight_bytes, double optimizer_bytes);

struct ZeroTableRow {
  int stage = 0;
  MemoryReport held;  // on the pipeline rank that holds most; includes activations
  ZeroBytes formula;  // for the parameters of that rank
};

struct ZeroTable {
  int shared = 1;                  // data-parallel ranks that shard
  double weight_bytes = 0;         // per parameter
  double gradient_bytes = 0;       // per parameter, as this engine accumulates; the formula uses weight_bytes
  double optimizer_bytes = 0;      // per parameter, masters included
  std::vector<ZeroTableRow> rows;  // ZeRO stages that the schedule allows
};

// `counted` caches rows of the plan.
ZeroTable make_zero_table(const PlannedRun& planned, const PlannedMachine& machine,
                          CountedActivations counted = {});

}  // namespace trifold
