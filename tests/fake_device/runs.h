// Compares runs on the device of the module in TRIFOLD_MODULE_PATH with runs on the processor.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "comm/cuda_module.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {

inline PretrainConfig on_device(PretrainConfig config) {
  config.mesh.device = ComputeDevice::Cuda;
  return config;
}

inline bool is_fake_device() { return std::string_view(cuda_ops(0).name) == "fake"; }

// A function that the fake device has for tests.
template <class Function>
inline Function* fake_device_function(const char* name) {
  const std::string file = std::string(std::getenv("TRIFOLD_MODULE_PATH")) + "/" + kCudaModuleFile;
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  check(module != nullptr, "{} is not loaded", file);
  const auto function = reinterpret_cast<Function*>(dlsym(module, name));
  check(function != nullptr, "{} has no {}", file, name);
  dlclose(module);
  return function;
}

// What the fake device was asked for so far: how often, and bytes that are still allocated.
struct Asked {
  int64_t times = 0;
  size_t device = 0, shared = 0;
};
inline Asked asked() {
  Asked asked;
  fake_device_function<void(int64_t*, size_t*, size_t*)>("fake_device_asked")(&asked.times, &asked.device,
                                                                              &asked.shared);
  return asked;
}

// Of two runs on one device, real or not, that must not differ.
inline void expect_same_bits(const Curve& curve, const Curve& other) {
  EXPECT_EQ(first_difference<double>(curve.losses, other.losses), kSame);
  EXPECT_EQ(first_difference<double>(curve.grad_norms, other.grad_norms), kSame);
  EXPECT_EQ(curve.valid_loss, other.valid_loss);
}

// Of a run on the device and one on the processor: the fake device computes as the processor does; a real one
// sums in another order, and in 16 bits its attention drops other weights.
inline void expect_as_on_host(const Curve& device, const Curve& host) {
  if (is_fake_device()) return expect_same_bits(device, host);
  EXPECT_LT(relative_error(device.losses, host.losses), 1e-2);
}

inline PretrainConfig short_run() {
  PretrainConfig config = small_run();
  config.batch.train_iters = 5;
  return config;
}

}  // namespace trifold::test
