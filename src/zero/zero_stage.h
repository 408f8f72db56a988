// What data-parallel ranks share out instead of each holding all of it (Rajbhandari et al., "ZeRO: Memory
// optimizations toward training trillion parameter models", SC 2020).
#pragma once

namespace trifold {

struct ZeroStage {
  bool optimizer = false;   // stage 1: moments and master weights
  bool gradients = false;   // stage 2: and the sums of gradients
  bool parameters = false;  // stage 3: and the weights

  static ZeroStage of(int stage) { return {stage >= 1, stage >= 2, stage >= 3}; }
  bool operator==(const ZeroStage&) const = default;
};

// What becomes of --zero-stage on a mesh, decided once: groups of `group` data-parallel ranks that follow
// each other, of which there are `groups`, share out what `stage` says. Nothing, where a group is one rank.
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
