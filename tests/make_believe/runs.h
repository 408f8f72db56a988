// Runs on the device of the module in TRIFOLD_MODULE_PATH, held against the processor's.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "comm/cuda_module.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {

inline PretrainConfig on_device(PretrainConfig config) {
  config.mesh.device = "cuda";
  return config;
}

inline bool is_make_believe() { return std::string_view(cuda_ops(0).name) == "make-believe"; }

inline void expect_same_bits(const Curve& device, const Curve& host) {
  if (!is_make_believe()) {
    EXPECT_LT(relative_error(device.losses, host.losses), 1e-2);
    return;
  }
  EXPECT_EQ(first_difference<double>(device.losses, host.losses), kSame);
  EXPECT_EQ(first_difference<double>(device.grad_norms, host.grad_norms), kSame);
  EXPECT_EQ(device.valid_loss.has_value(), host.valid_loss.has_value());
  EXPECT_EQ(device.valid_loss.value_or(0), host.valid_loss.value_or(0));
}

inline PretrainConfig short_run() {
  PretrainConfig config = small_run();
  config.batch.train_iters = 5;
  return config;
}

}  // namespace trifold::test
