// The work of a rank for one micro-batch, operation by operation, as a plan counts and prices it: `trifold plan
// --records`.
#pragma once

#include <string>
#include <vector>

#include "core/work_log.h"
#include "layout/run_spec.h"
#include "plan/forecast/planned_machine.h"

namespace trifold {

// Equal operations, merged wherever they occur in the list. The counts in `work` are for one execution.
struct Record {
  Work work;
  double times = 0;    // executions
  double seconds = 0;  // all executions, without overlap; operations on other streams may overlap
};

// The work of one kind of block in F, I and W.
struct RecordedBlock {
  std::string name;  // "embedding", "layer", "layer without experts", "head"
  int blocks = 1;    // blocks of this kind in the model
  std::vector<Record> forward, input, weight;
};

// The work of each kind of block on the first rank of a stage. BadInput if times are measured (--costs): they are per
// block, not per operation.
std::vector<RecordedBlock> recorded_work(const RunSpec& planned, const PlannedMachine& machine);

}  // namespace trifold
