// Failures of machines, for the forecast of a run's goodput (plan/goodput/goodput.h).
#pragma once

#include <cstdint>
#include <optional>

namespace trifold {

struct GoodputConfig {
  std::optional<double> mtbf;          // mean hours between failures of one node; absent: no forecast
  std::optional<double> save_seconds;  // seconds to write a checkpoint; from its bytes and storage_gbps
  std::optional<double> storage_gbps;  // GB/s (1e9 bytes) at which all ranks together write a checkpoint
  std::optional<double> save_stall_seconds;  // seconds that a background save stops training
  double restart_seconds = 600;              // from a noticed failure to the next step
  std::optional<double> detect_seconds;      // from a failure until it is noticed; the time-out of a wait
  int64_t spare_nodes = 0;                   // nodes that replace broken ones
  double repair_hours = 24;                  // until a broken node can be used again
  int64_t goodput_trials = 200;              // simulated runs
};

}  // namespace trifold
