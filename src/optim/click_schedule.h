// The learning rate of MLPerf's recommenders: linear warm-up, a plateau, a parabola down to almost nothing.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trifold {

struct ClickSchedule {
  int64_t warmup = 0;       // steps
  int64_t decay_start = 0;  // step, 0: no decay
  int64_t decay_steps = 0;

  // For step s, counted from 1:  lr s / W below W;  lr;  lr ((N - (s - d)) / N)^2 from d on, never below
  // 1e-7, where it stays. The plateau is lr itself, as in NVIDIA's DLRM and HugeCTR; facebookresearch/dlrm
  // holds the last value of its warm-up, lr (W - 1) / W.
  double rate(double lr, int64_t step) const {
    if (step < warmup) return lr * static_cast<double>(step) / static_cast<double>(warmup);
    if (decay_start == 0 || step < decay_start) return lr;
    const auto left = static_cast<double>(std::max<int64_t>(0, decay_steps - (step - decay_start)));
    const double share = left / static_cast<double>(decay_steps);
    return std::min(lr, std::max(1e-7, lr * share * share));
  }
};

}  // namespace trifold
