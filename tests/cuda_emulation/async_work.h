// What the threads of an emulated block have begun and not awaited yet: copies to shared memory (cp.async), products of
// warpgroups (wgmma) and boxes of tensors (cp.async.bulk.tensor).
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
  const void* code;
};

constexpr int kBoxRowBytes = 128;
constexpr int kMostBoxRows = 256;

// A box on its way to shared memory.
struct ArrivingBox {
  unsigned char* to;
  TensorMap map;
  BoxCorner corner;
  const uint64_t* barrier;
  int bytes() const { return kBoxRowBytes * map.box[1]; }
  void arrive() const;
};

// A box on its way to global memory, with its bytes when it was begun.
struct LeavingBox {
  TensorMap map;
  BoxCorner corner;
  const unsigned char* from;
  bool add;
  std::vector<unsigned char> bytes;
  uint32_t group;
  void leave() const;
};

// Of one thread.
struct AsyncWork {
  std::vector<Copy> copies;
  uint32_t copy_group = 0;  // that the next copy belongs to
  std::vector<Product> products;
  uint32_t product_group = 0;
  std::vector<LeavingBox> boxes;
  uint32_t box_group = 0;
};

// Of the running thread.
AsyncWork& work_of_current();
unsigned current_thread();  // within its block
void see(const void* at, size_t bytes, AccessKind kind, const void* code);
// Adds a box to those that arrive when no thread can go on.
void add_arriving(ArrivingBox box, const void* code);

}  // namespace trifold::cuda::emulation
