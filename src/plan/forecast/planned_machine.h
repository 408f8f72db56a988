// PlannedMachine: the machine and the program for which a plan is made. Times come from a device's figures, from
// measured blocks, or from plain rates.
#pragma once

#include <optional>
#include <string>

#include "plan/forecast/hardware.h"
#include "plan/forecast/software.h"

namespace trifold {

struct PlannedMachine {
  std::optional<Hardware> hardware;  // if set, prices a step; otherwise costs_file or the rates below do
  Software software;                 // the program on that hardware
  std::string costs_file;            // block times measured by `trifold bench`; empty: none

  double peak_flops = 150e12;              // per second, matrix products
  double tensor_bytes_per_second = 250e9;  // between ranks that share a layer
  double bytes_per_second = 25e9;          // between stages, and between data-parallel replicas
  double message_latency = 5e-6;           // seconds
  double offload_bytes_per_second = 2e9;   // between memory and the file of off-loaded activations

  double expert_load = 1;  // rows of the busiest of the ranks that share experts, relative to the mean

  // Whether the memory of a rank is another program's.
  bool describes_memory() const { return hardware && software.describes_memory(); }
};

}  // namespace trifold
