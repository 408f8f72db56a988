// ZeroStage: the state that data-parallel ranks shard instead of replicating (Rajbhandari et al., "ZeRO: Memory
// optimizations toward training trillion parameter models", SC 2020).
#pragma once

namespace trifold {

struct ZeroStage {
  bool optimizer = false;   // stage 1: moments and master weights
  bool gradients = false;   // stage 2: also the sums of gradients
  bool parameters = false;  // stage 3: also the weights

  static ZeroStage of(int stage) { return {stage >= 1, stage >= 2, stage >= 3}; }
  bool operator==(const ZeroStage&) const = default;
};

// How a mesh shards state: `groups` groups of `group` consecutive data-parallel ranks shard the state in `stage`. A
// group of one rank shards nothing.
struct ZeroSharing {
  ZeroStage stage;
  int group = 1;
  int groups = 1;

  ZeroSharing() = default;
  ZeroSharing(int stage_number, int group_size, int data_ranks)
      : stage(group_size > 1 ? ZeroStage::of(stage_number) : ZeroStage{}),
        group(group_size),
        groups(data_ranks / group_size) {}
};

}  // namespace trifold
