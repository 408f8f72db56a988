// Makes the plan of a training step from the configuration, ready for the executors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/rank_layout.h"
#include "layout/run_spec.h"
#include "schedule/automatic.h"
#include "schedule/check.h"

namespace trifold {

// The order of computation, before the model is cut.
struct StepOrder {
  Plan compute;                    // [pipeline rank]
  std::vector<int> rank_of_stage;  // pipeline rank of every stage of `compute`
  TokenLookups lookups = TokenLookups::AtHead;
  int batches = 1;          // global batches the plan covers: more than 1 for asynchronous schedules
  int micros = 0;           // of one global batch on one data-parallel rank
  bool async = false;       // updates happen inside the plan
  std::string file;         // source of the plan; empty: generated
  bool take_turns = false;  // the halves of pairs do (--overlap-moe-expert-parallel-comm)
  std::optional<AutomaticChoice> automatic = {};  // of --schedule auto

  // For a CutModel.
  StagePlaces places() const { return {rank_of_stage, lookups}; }
};

// The global batches, from step `done` on, that one plan covers: more than 1 only for asynchronous schedules, whose
// pipeline drains at multiples of --async-window and at the end.
int batches_of_plan(const RunSpec& run, int64_t done);
// The global batches of an asynchronous schedule that a forecast looks at: the window, or as much of it as shows its
// steady state.
int batches_to_simulate(const RunSpec& run);

// The order, generated or read from the file that --schedule names; `batches` is for asynchronous schedules. BadInput
// if the file cannot be read or is for another number of ranks or stages, or if the file of costs has mistakes.
StepOrder step_order(const RunSpec& run, int batches = 1);

// Whether step_order searches for the order (--schedule auto), which may take minutes.
bool searches_order(const RunSpec& run);
// The order that such a search found, `compute`, without its AutomaticChoice.
StepOrder order_of_plan(const RunSpec& run, Plan compute);

// How a step sums its gradients: after each micro-batch or once.
Reduction reduction_of(const RunSpec& run, bool each);

// The shape against which the complete plan of that order is checked. `each`: gradients are reduced after each
// micro-batch, except for the unit of a weight that is tied to one on another rank. BadInput if no stage has as many
// layers as are to be off-loaded.
PlanShape plan_shape(const RunSpec& run, const StepOrder& order, const CutModel& model, bool each);

// The order of computation with the stages that look up tokens, if it has none.
Plan with_lookups(const StepOrder& order, const PlanShape& shape);

// Adds these, reductions, updates, messages and off-loading, and checks the result. BadInput if halves of pairs are to take turns
// and no pair is left: the last backward of a stage, which is followed by reductions, is in none.
Plan complete_plan(const StepOrder& order, const PlanShape& shape);

}  // namespace trifold
