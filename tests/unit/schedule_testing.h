// Helpers for tests of plans.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "schedule/check.h"
#include "schedule/passes.h"
#include "schedule/placement.h"
#include "schedule/schedules.h"
#include "support/test_data.h"

namespace trifold::test {

// The text of a file of tests/golden.
inline std::string golden_text(const std::string& name) {
  std::ifstream file(test_data() + "/golden/" + name);
  if (!file) throw std::runtime_error("cannot open the golden file " + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A plan with one block per stage, its reductions (after the last micro-batch or after each), messages and Steps, and
// the shape to check it against.
struct Complete {
  Plan plan;
  PlanShape shape;
};

inline Complete complete(const Plan& compute, int micros, bool tied = false, int blocks = 1,
                         Pairs pairs = Pairs::Apart, bool each = false) {
  const int stages = static_cast<int>(stage_ranks(compute).size());
  Complete result{{}, {.stages = stages, .micros = micros}};
  if (tied) result.shape.tied = {{stages - 1, blocks - 1}};
  result.shape.blocks.assign(static_cast<size_t>(stages), blocks);
  result.shape.bucket_ends.assign(static_cast<size_t>(stages), {0});
  if (each) result.shape.each = result.shape.bucket_ends;
  if (each && tied && stage_ranks(compute).front() != stage_ranks(compute).back()) result.shape.each[0] = {};
  result.plan = add_communication(add_reduce(compute, result.shape.blocks, result.shape.bucket_ends,
                                             result.shape.tied, result.shape.each),
                                  pairs);
  return result;
}

inline Complete complete(Schedule schedule, int ranks, int chunks, int micros, bool tied = false,
                         int blocks = 1) {
  return complete(make_schedule(schedule, ranks, chunks, micros), micros, tied, blocks);
}

}  // namespace trifold::test
