// Makes the plan of a training step from the configuration: first a StepOrder, the order of computation on each rank;
// then, once the model is cut into stages, the complete Plan for the executors.
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

// The order of computation, known before the model is cut into stages.
struct StepOrder {
  Plan compute;                    // [pipeline rank]
  std::vector<int> rank_of_stage;  // pipeline rank of every stage of `compute`
  TokenLookups lookups = TokenLookups::AtHead;
  int batches = 1;          // global batches the plan covers: more than 1 for asynchronous schedules
  int micros = 0;           // micro-batches of a global batch on one data-parallel rank
  bool async = false;       // updates happen inside the plan
  std::string file;         // source of the plan; empty: generated
  bool take_turns = false;  // the halves of pairs alternate (--overlap-moe-expert-parallel-comm)
  std::optional<AutomaticChoice> automatic = {};  // with --schedule auto

  // The pipeline ranks of the stages, for CutModel.
  StageRanks stage_ranks() const { return {rank_of_stage, lookups}; }
};

// The number of global batches that one plan covers from step `done` on: more than 1 only for asynchronous schedules,
// whose pipeline drains at multiples of --async-window, where the size of the batch changes, and at the end of the run.
int batches_of_plan(const RunSpec& run, int64_t done);
// The number of global batches of an asynchronous schedule that a forecast simulates: the window, or as many as reach
// the steady state.
int batches_to_simulate(const RunSpec& run);

// Generates the order, or reads it from the file that --schedule names. `batches`: global batches that the plan of an
// asynchronous schedule covers. BadInput if the file cannot be read or is made for other numbers of ranks, stages or
// micro-batches, or if the file of --schedule-costs has mistakes.
StepOrder step_order(const RunSpec& run, int batches = 1);

// Whether step_order searches for the order (--schedule auto), which may take minutes.
bool searches_order(const RunSpec& run);
// The StepOrder for `compute`, an order that such a search found earlier; it lacks the AutomaticChoice.
StepOrder order_of_plan(const RunSpec& run, Plan compute);

// How a step sums its gradients over the ranks: after each micro-batch (`each`) or once per step.
Reduction reduction_of(const RunSpec& run, bool each);

// The shape against which the complete plan for `order` is checked. `each`: gradients are reduced after each
// micro-batch, except in the unit that has a weight tied to a weight on another rank. BadInput if no stage has as many
// layers as are to be off-loaded.
PlanShape plan_shape(const RunSpec& run, const StepOrder& order, const CutModel& model, bool each);

// The order of computation, with the token-lookup stages added if it lacks them, without the backward of stages that train
// nothing.
Plan with_lookups(const StepOrder& order, const PlanShape& shape);

// Adds lookups, reductions, updates, messages and off-loading to the order, and checks the result. BadInput if halves
// of pairs are to alternate but no pair can: the last backward of a stage, which reductions follow, never can.
Plan complete_plan(const StepOrder& order, const PlanShape& shape);

}  // namespace trifold
