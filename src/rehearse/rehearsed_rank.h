// A rank that was run alone: what it held, what it did and how long that took, and what was planned. Plain values;
// `rehearse_rank` (rehearse/rehearse.h) makes them for a transformer, its twin for a recommender.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/memory_report.h"
#include "schedule/action.h"

namespace trifold {

// All actions of one kind on one stage.
struct MeasuredAction {
  ActionKind kind = ActionKind::F;
  int stage = 0;
  int count = 0;              // in one step
  double median_seconds = 0;  // one action alone: no other work of the rank overlaps with it
  bool of_block = false;  // every one is on one block, and median_seconds is the mean of the blocks' medians
};

// All calls of one kind on communicators over the same axes, in one step.
struct MeasuredCall {
  std::string group;  // the axes, as axes_text names them ("tp", "cp.dp"); "world" for all ranks
  std::string kind;   // "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "exchange"
  int ranks = 1;      // size of the communicator
  int64_t bytes = 0;  // that this rank sends in the largest of them
  int64_t all_bytes = 0;       // that it sends in all of them
  int64_t count = 0;           // in one step
  double planned_seconds = 0;  // all of them together, at the plan's prices; 0 if no machine was named
};

// Bytes of one category, for kinds of runs whose categories are not a MemoryReport's.
struct MemoryPart {
  std::string name;
  size_t planned = 0, held = 0;
};

struct RehearsedRank {
  int rank = 0;           // in the world
  int pipeline_rank = 0;  // its coordinate on the pipeline axis
  // By category. `planned` is of the plan that ran (with cut micro-batches: of the cut step). `held` is what the objects
  // of the running rank hold; its predicted_activations are the executor's arenas, slots and messages.
  MemoryReport planned, held;
  std::vector<MemoryPart> parts;  // for a recommender, instead of `planned` and `held`
  // How much the resident memory of this process grew, at most, from before the rank was built to its end.
  size_t resident_bytes = 0;
  std::vector<MeasuredAction> actions;  // in the order in which kinds first occur
  std::vector<MeasuredCall> calls;      // likewise
  double step_seconds = 0;    // median of the steps that were timed: this rank alone, nothing waited for
  int64_t steps = 0;          // that were measured
  int64_t micro_batches = 0;  // micro-batches of this rank in a step
  std::vector<std::string> loaded;  // what was loaded of a checkpoint, a line each
  std::vector<std::string> notes;   // what differs from a real run, a line each
  std::string failure;              // what failed, as the run would say it; empty: nothing
};

}  // namespace trifold
