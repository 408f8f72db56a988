// The first device of tests that skip where there is none.
#pragma once

#include <string>

#include "comm/cuda_module.h"

namespace trifold::test {

// Its table; null where there is no device, and then `why` says so.
inline const OpTable* device_ops(std::string& why, const CudaTable& which = {}) {
  try {
    return &cuda_ops(0, which);
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

}  // namespace trifold::test
