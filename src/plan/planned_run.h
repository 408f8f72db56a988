// PlannedRun is the plan of a run's steps: the order of computation, the model cut into stages, and the actions and
// memory of every pipeline rank. It is made once, without allocating anything of the model; the memory check, `trifold
// plan`, searches and the run itself read it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layout/rank_layout.h"
#include "layout/run_spec.h"
#include "plan/step_plan.h"

namespace trifold {

class PlannedRun {
 public:
  // A plan for `batches` global batches: more than one only for asynchronous schedules. May take minutes if the order
  // is searched for (searches_order). BadInput if the schedule, or the file that holds it, gives no plan that can run,
  // or if ZeRO cannot shard as requested, or if a pattern of --lr-mult or --wd-mult matches no parameter.
  explicit PlannedRun(const RunSpec& run, int batches = 1);
  // With an order that is already known.
  PlannedRun(RunSpec run, StepOrder order);
  PlannedRun(const PlannedRun&) = delete;
  PlannedRun& operator=(const PlannedRun&) = delete;

  const RunSpec& run() const { return run_; }
  const MeshSizes& sizes() const { return sizes_; }
  const ZeroSharing& zero() const { return zero_; }
  const StepOrder& order() const { return order_; }
  // The model as cut for the ranks at the first position of all axes but the pipeline's.
  const CutModel& cut() const { return cut_; }
  // The layout of that rank on each pipeline stage.
  const RankLayout& layout(int pipeline_rank) const { return layouts_[static_cast<size_t>(pipeline_rank)]; }
  const PlanShape& shape() const { return shape_; }
  // What --lr-mult and --wd-mult match, a line each (optim/param_factors.h).
  const std::vector<std::string>& param_factors() const { return param_factors_; }
  // The complete plan, with gradients reduced as the run does.
  const Plan& plan() const { return plan_; }
  // The complete plan with gradients reduced after each micro-batch (`each`), or once per step.
  Plan plan_reducing(bool each) const;

 private:
  RunSpec run_;
  MeshSizes sizes_;
  ZeroSharing zero_;
  StepOrder order_;
  CutModel cut_;
  std::vector<RankLayout> layouts_;
  PlanShape shape_;
  Plan plan_;
  std::vector<std::string> param_factors_;
};

// The plans of a run whose batch may grow, one for each of its sizes.
class PlannedRuns {
 public:
  // None: a plan is made when it is needed.
  PlannedRuns() = default;
  PlannedRuns(std::shared_ptr<const PlannedRun> only);  // NOLINT(google-explicit-constructor): the usual case
  // Makes all plans of a run of run.train_iters steps. Throws as PlannedRun does.
  explicit PlannedRuns(const RunSpec& run);

  bool empty() const { return plans_.empty(); }
  std::span<const std::shared_ptr<const PlannedRun>> all() const { return plans_; }
  // The plan of the run's first step.
  const PlannedRun& first() const { return *plans_.front(); }
  // The plan for `batches` global batches of `size` samples; null if it is not here.
  std::shared_ptr<const PlannedRun> find(int64_t size, int batches) const;

 private:
  std::vector<std::shared_ptr<const PlannedRun>> plans_;  // in the order of the run
};

}  // namespace trifold
