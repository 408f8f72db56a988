// What data-parallel ranks share out instead of each holding all of it (Rajbhandari et al., "ZeRO: Memory
// optimizations toward training trillion parameter models", SC 2020).
#pragma once

namespace trifold {

struct ZeroStage {
  bool optimizer = false;   // stage 1: moments and master weights
  bool gradients = false;   // stage 2: and the sums of gradients
  bool parameters = false;  // stage 3: and the weights

  static ZeroStage of(int stage) { return {stage >= 1, stage >= 2, stage >= 3}; }
};

}  // namespace trifold
