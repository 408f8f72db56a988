// Checks of OFFLOAD and FETCH, and of the actions that read activations; internal.
#pragma once

#include <map>
#include <tuple>

#include "schedule/check/check_action.h"

namespace trifold {

class OffloadCheck {
 public:
  explicit OffloadCheck(const PlanShape& shape) : shape_(shape) {}

  // Checks an OFFLOAD or FETCH at a point where `forwards` blocks of its stage have run forward with its micro-batch
  // and block `input` is the next to compute its input gradient.
  void take(const PlanPosition& at, const Action& action, int forwards, int input);

  // Checks that everything a backward action reads has been fetched: the activations of its blocks, and the output of
  // the block in front of them. Its stage has `blocks` blocks.
  void check_read(const PlanPosition& at, const Action& action, int blocks) const;

 private:
  const PlanShape& shape_;
  std::map<std::tuple<int, int, int>, bool> offloaded_;  // [stage, block, micro] whether fetched again
};

}  // namespace trifold
