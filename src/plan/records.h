// What a rank does with one micro-batch, as a plan counts and prices it: `trifold plan --records`.
#pragma once

#include <string>
#include <vector>

#include "core/work_log.h"
#include "layout/run_spec.h"
#include "plan/forecast/planned_machine.h"

namespace trifold {

// Work that is the same but for its place in the list. The numbers of `work` are of one time.
struct Record {
  Work work;
  double times = 0;
  double seconds = 0;  // of all times, where nothing else runs; as `work` it may overlap with other work
};

// Of one kind of block: in F, I and W.
struct RecordedBlock {
  std::string name;  // "embedding", "layer", "layer without experts", "head"
  int blocks = 1;    // of the model that are like it
  std::vector<Record> forward, input, weight;
};

// Of the first rank of a stage, for each kind of block. BadInput if times are measured (--costs), of which no operation's
// are known.
std::vector<RecordedBlock> recorded_work(const RunSpec& planned, const PlannedMachine& machine);

}  // namespace trifold
