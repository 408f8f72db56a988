// The OpTable of a CUDA device.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

OpTable make_table(Device* device);

}  // namespace trifold::cuda
