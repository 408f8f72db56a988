// Checks of OFFLOAD and FETCH, and of the actions that read activations; internal.
#pragma once

#include <map>
#include <tuple>

#include "schedule/check/check_action.h"

namespace trifold {

class OffloadCheck {
 public:
  explicit OffloadCheck(const PlanShape& shape) : shape_(shape) {}

  // An OFFLOAD or FETCH, when `forwards` blocks of its stage have gone forward with its micro-batch and the input
  // gradient of block `input` is next.
  void take(const PlanPosition& at, const Action& action, int forwards, int input);

  // That a backward action finds fetched all that it reads: the activations of its blocks, and the output of the block
  // in front of them. Its stage has `blocks` blocks.
  void check_read(const PlanPosition& at, const Action& action, int blocks) const;

 private:
  const PlanShape& shape_;
  std::map<std::tuple<int, int, int>, bool>
      offloaded_;  // stage, block, micro: whether they have been fetched
};

}  // namespace trifold
