// The first device, for tests that skip if there is none.
#pragma once

#include <string>

#include "comm/cuda_module.h"

namespace trifold::test {

// The operation table of the first device; null, with the reason in `why`, if there is none.
inline const OpTable* device_ops(std::string& why, const CudaTable& which = {}) {
  try {
    return &cuda_ops(0, which);
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

}  // namespace trifold::test
