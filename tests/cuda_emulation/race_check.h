// RaceCheck: finds accesses of emulated kernels that are not ordered by a barrier.
//
// While a RaceCheck of the calling thread lives, every load and store of a kernel that the thread launches is
// compared with earlier accesses to the same bytes in that launch. Two accesses race if at least one of them
// is a write, they are not both atomic, and
//   * they come from two threads of a block and nothing orders them: no __syncthreads, no barrier.sync of both
//     threads, no arrival at a phase barrier for which the second thread waited nor, if both are in one warp, a
//     __syncwarp. Shuffles and votes do not order memory, as CUDA's manual says. A copy by the hardware is ordered
//     by its phase barrier alone, and reads of products end when they are awaited;
//   * or they come from two blocks and access global memory: the blocks of a launch are not ordered.
// Whether the written values differ does not matter. Shared memory belongs to one block.
//
// Accesses are observed because the kernels are compiled with -fsanitize=thread, with access_hooks.cpp in
// place of ThreadSanitizer's run-time library. Not observed: values that the compiler keeps in registers, and
// library functions such as a memcpy that is not expanded inline; a missing proxy fence between ordinary accesses and
// those by the hardware.
//
// A launch takes about three times as long, and 72 bytes of memory for every four that its kernel accesses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trifold::cuda::emulation {

class ShadowMemory;

enum class AccessKind : uint8_t { Read, Write, Atomic };

struct RaceAccess {
  AccessKind kind;
  unsigned block;    // blockIdx.y * gridDim.x + blockIdx.x
  unsigned thread;   // within its block
  const void* code;  // the instruction after the access
};

struct Race {
  std::string kernel;  // as named by its launch
  bool shared;         // memory of a block; otherwise global
  const void* address;
  RaceAccess first, second;
};

class RaceCheck {
 public:
  // Whether the kernels of this build report their accesses: builds with a sanitizer do not.
  static bool is_available();

  // At most one per thread at a time.
  RaceCheck();
  ~RaceCheck();
  RaceCheck(const RaceCheck&) = delete;
  RaceCheck& operator=(const RaceCheck&) = delete;

  // The races found so far, one for each pair of instructions, at most 20.
  const std::vector<Race>& races() const;

 private:
  std::unique_ptr<ShadowMemory> memory_;
};

}  // namespace trifold::cuda::emulation
