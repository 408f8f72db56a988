#include "plan/planned_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "optim/param_factors.h"

namespace trifold {

namespace {

std::vector<std::string> trained_names(const ParamList& params) {
  std::vector<std::string> names;
  for (const ParamId id : params.by_name())
    if (const ParamSpec& spec = params[id];
        !spec.frozen && !spec.is_buffer && (names.empty() || names.back() != spec.shard.name))
      names.push_back(spec.shard.name);
  return names;
}

}  // namespace

PlannedRun::PlannedRun(const RunSpec& run, int batches) : PlannedRun(run, step_order(run, batches)) {}

PlannedRun::PlannedRun(RunSpec run, StepOrder order)
    : run_(std::move(run)),
      sizes_(mesh_sizes(run_.mesh)),
      zero_(zero_sharing(run_)),
      order_(std::move(order)),
      cut_(run_.model, run_.mesh, Mesh(sizes_, {}), run_.seed, order_.stage_ranks()),
      shape_(plan_shape(run_, order_, cut_, run_.reduces_each())),
      plan_(complete_plan(order_, shape_)) {
  param_factors_ = matched_factors(run_.optimizer, trained_names(cut_.model.params));
  for (int rank = 0; rank < sizes_[Axis::Pp]; ++rank)
    layouts_.emplace_back(cut_, sizes_, MeshCoords{{Axis::Pp, rank}}, run_.zero, zero_);
}

PlannedRuns::PlannedRuns(std::shared_ptr<const PlannedRun> only) {
  if (only) plans_.push_back(std::move(only));
}

PlannedRuns::PlannedRuns(const RunSpec& run) {
  for (const StepsOfSize& some : run.batch_sizes.sizes_of(std::max<int64_t>(1, run.train_iters))) {
    const int64_t batches =
        run.order.is_async() ? std::min(run.order.window, some.steps) : 1;  // the most of a plan
    plans_.push_back(
        std::make_shared<const PlannedRun>(run.with_batch(some.size), static_cast<int>(batches)));
  }
}

std::shared_ptr<const PlannedRun> PlannedRuns::find(int64_t size, int batches) const {
  for (const auto& plan : plans_)
    if (plan->run().global_batch_size == size && plan->order().batches == batches) return plan;
  return nullptr;
}

Plan PlannedRun::plan_reducing(bool each) const {
  if (each == run_.reduces_each()) return plan_;
  return complete_plan(order_, plan_shape(run_, order_, cut_, each));
}

}  // namespace trifold
