// PlannedMachine: the machine, and the program, for which a plan is made: a device's figures, rates, or measured times.
#pragma once

#include <optional>
#include <string>

#include "plan/forecast/hardware.h"
#include "plan/forecast/software.h"

namespace trifold {

struct PlannedMachine {
  std::optional<Hardware> hardware;  // its figures price a step; otherwise the file, or the rates, below do
  Software software;                 // that runs on the hardware
  std::string costs_file;            // times of blocks that `trifold bench` measured; empty: none

  double peak_flops = 150e12;              // a second, of matrix products
  double tensor_bytes_per_second = 250e9;  // between ranks that share a layer
  double bytes_per_second = 25e9;          // between stages, and between data-parallel replicas
  double message_latency = 5e-6;           // seconds
  double offload_bytes_per_second = 2e9;   // between memory and the file of off-loaded activations

  double expert_load = 1;  // rows of the busiest of the ranks that share experts, over the mean

  // Whether what a rank keeps is that of another program.
  bool describes_memory() const { return hardware && software.describes_memory(); }
};

}  // namespace trifold
