#include "schedule/check.h"

#include "core/error.h"
#include "schedule/check/check_rows.h"
#include "schedule/placement.h"

namespace trifold {

void check_plan(const Plan& plan, const PlanShape& shape) {
  check(shape.stages > 0 && shape.micros > 0, "a plan of {} stages and {} micro-batches", shape.stages,
        shape.micros);
  check(shape.blocks.empty() || static_cast<int>(shape.blocks.size()) == shape.stages,
        "{} stages, but block counts of {}", shape.stages, shape.blocks.size());
  const std::vector<int> rank_of = stage_ranks(plan);
  if (static_cast<int>(rank_of.size()) != shape.stages)
    bad_input("the plan has {} stages, the model is cut into {}", rank_of.size(), shape.stages);
  for (size_t rank = 0; rank < plan.size(); ++rank)
    if (plan[rank].empty()) bad_input("the plan is wrong: rank {} has nothing to do", rank);
  check_rows(plan, shape, rank_of);
  check_message_order(plan, rank_of);
  check_runs(plan, shape, rank_of);
}

}  // namespace trifold
