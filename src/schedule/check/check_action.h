// Checks of a single action's fields; internal.
#pragma once

#include <utility>

#include "core/error.h"
#include "schedule/check.h"
#include "schedule/placement.h"

namespace trifold {

// The position in a plan that is being checked; errors name the action there.
struct PlanPosition {
  const Plan& plan;
  size_t rank = 0, index = 0;

  template <class... Args>
  void require(bool good, fmt::format_string<Args...> why, Args&&... args) const {
    if (good) return;
    bad_input("the plan is wrong at {}: it {}", where(plan, rank, index),
              fmt::format(why, std::forward<Args>(args)...));
  }
};

inline bool is_micro_of(const PlanShape& shape, const Action& action) {
  return 0 <= action.micro && action.micro < shape.micros;
}

// Whether the plan reduces the bucket that ends at this block after every micro-batch.
bool is_each(const PlanShape& shape, int stage, int block);
// Whether the action reduces such a bucket.
bool reduces_one_micro(const PlanShape& shape, const Action& action);

// Checks micro-batch, block and weight version of an action whose stage has `blocks` blocks.
void check_fields(const PlanPosition& at, const Action& action, const PlanShape& shape, int blocks);
// Checks an action that overlaps the next one.
void check_pair(const PlanPosition& at, const Action& action);

}  // namespace trifold
