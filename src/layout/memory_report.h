// MemoryReport: the bytes that one rank holds.
#pragma once

#include <cstddef>

namespace trifold {

// `predicted_activations` comes from walking the plan before anything is allocated.
struct MemoryReport {
  size_t parameters = 0;
  size_t gradients = 0;
  size_t optimizer = 0;
  size_t predicted_activations = 0;
  size_t offloaded =
      0;  // in a file, or in host memory while a device computes; not included in the other fields
  size_t workspace = 0;              // libraries' workspace on a device (layout/device_workspace.h)
  size_t offloaded_activations = 0;  // activations, included in `offloaded`
  size_t predicted_total() const {
    return parameters + gradients + optimizer + predicted_activations + workspace;
  }
};

}  // namespace trifold
