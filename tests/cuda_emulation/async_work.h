// What the threads of an emulated block have begun and not awaited yet: copies to shared memory (cp.async) and products of
// warpgroups (wgmma).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cuda_emulation/emulation.cuh"
#include "cuda_emulation/race_check.h"

namespace trifold::cuda::emulation {

constexpr size_t kCopiedBytes = 16;
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  const void* code;
  uint32_t group;
};

struct Product {
  float* d;
  SharedMatrix left, right;
  float (*wide)(uint16_t);
  std::array<float, 128> result;  // with the operands as they were when it began
  uint32_t group;
};

// Of one thread.
struct AsyncWork {
  std::vector<Copy> copies;
  uint32_t copy_group = 0;  // that the next copy belongs to
  std::vector<Product> products;
  uint32_t product_group = 0;
};

// Of the running thread.
AsyncWork& work_of_current();
unsigned current_thread();  // within its block
void see(const void* at, size_t bytes, AccessKind kind, const void* code);

}  // namespace trifold::cuda::emulation
