// What the CUDA module says about the driver, the devices and NVIDIA's libraries of this machine.
#pragma once

#include "comm/cuda_module.h"

namespace trifold::cuda {

// Sets all fields of `report` but its module. Opens the libraries, and no device. Throws nothing about what is missing.
void fill(CudaReport& report);

}  // namespace trifold::cuda
