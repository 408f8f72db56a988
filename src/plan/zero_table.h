// What each ZeRO stage makes a rank hold of parameters, gradients and optimizer state: what this engine would
// allocate, beside the formula of Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion
// parameter models" (SC 2020), section 3.
#pragma once

#include <cstdint>
#include <vector>

#include "config/fields/config.h"
#include "layout/memory_report.h"
#include "plan/report.h"

namespace trifold {

struct ZeroBytes {
  double parameters = 0, gradients = 0, optimizer = 0;
  double all() const { return parameters + gradients + optimizer; }
};

// The paper's formula for `parameters` parameters of a rank and `shared` ranks that shard: with weights
// of w bytes, gradients of as many, and k bytes of optimizer state a parameter, (2 w + k) Psi for stage 0, of
// which stage 1 divides k, stage 2 also the gradients' w and stage 3 the weights' w too.
ZeroBytes zero_formula(int stage, double parameters, int shared, double weight_bytes, double optimizer_bytes);

struct ZeroTableRow {
  int stage = 0;
  MemoryReport held;  // of the pipeline rank that holds most; activations included
  ZeroBytes formula;  // for the parameters of that rank
};

struct ZeroTable {
  int shared = 1;                  // data-parallel ranks that shard
  double weight_bytes = 0;         // of a parameter
  double gradient_bytes = 0;       // as this engine accumulates it; the formula takes that of a weight
  double optimizer_bytes = 0;      // of a parameter, masters included
  std::vector<ZeroTableRow> rows;  // of the stages that the schedule allows
};

// `config` must be resolved, its vocabulary included. `counted` has rows of its plan that are counted already.
ZeroTable make_zero_table(const PlanConfig& config, CountedActivations counted = {});

}  // namespace trifold
