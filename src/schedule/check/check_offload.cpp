#include "schedule/check/check_offload.h"

#include <algorithm>

namespace trifold {

// Both this block and the next need the block's output, which is the next one's input.
void OffloadCheck::take(const PlanPosition& at, const Action& action, int forwards, int input) {
  at.require(!shape_.offloaded.empty(), "moves activations, which needs --cpu-offloading-num-layers");
  const int most = shape_.offloaded.at(static_cast<size_t>(action.stage));
  at.require(0 <= action.block && action.block < most,
             "names no block whose activations are off-loaded; of stage {} those are the first {}",
             action.stage, most);
  const auto key = std::tuple(action.stage, action.block, action.micro);
  if (action.kind == ActionKind::Fetch) {
    const auto found = offloaded_.find(key);
    at.require(found != offloaded_.end() && !found->second, "fetches activations that are not off-loaded");
    found->second = true;
    return;
  }
  at.require(forwards > action.block + 1, "comes before the forward of block {}, which reads its output",
             action.block + 1);
  at.require(input > action.block, "comes after the backward of block {} has begun", action.block + 1);
  at.require(offloaded_.emplace(key, false).second, "off-loads its block and micro-batch a second time");
}

void OffloadCheck::check_read(const PlanPosition& at, const Action& action, int blocks) const {
  if (offloaded_.empty()) return;
  const int from = action.block == Action::kAll ? 0 : std::max(action.block - 1, 0);
  const int to = action.block == Action::kAll ? blocks - 1 : action.block;
  for (int block = from; block <= to; ++block) {
    const auto found = offloaded_.find(std::tuple(action.stage, block, action.micro));
    at.require(found == offloaded_.end() || found->second,
               "reads activations that are off-loaded: {}FETCH{}@{} must come before it", action.stage,
               action.micro, block);
  }
}

}  // namespace trifold
