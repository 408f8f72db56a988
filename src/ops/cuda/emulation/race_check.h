// Race check: finds accesses of emulated kernels that no barrier orders.
//
// While a RaceCheck of the calling thread lives, every load and store of a kernel that the thread launches is
// held against the earlier accesses of the same bytes in that launch. Two accesses race when at least one of
// them writes, not both are atomic, and
//   * they come from two threads of a block with no __syncthreads between them, nor, where both are of one
//     warp, a __syncwarp. Shuffles and votes order no memory, as CUDA's manual says;
//   * or they come from two blocks and touch global memory: nothing orders the blocks of a launch.
// Whether the values that are written differ does not matter. Shared memory belongs to one block.
//
// Accesses are seen because the kernels are compiled with -fsanitize=thread while access_hooks.cpp takes the
// place of ThreadSanitizer's run-time library. Not seen: what the compiler keeps in registers, and library
// functions such as a memcpy that is not expanded in place.
//
// A launch takes about three times as long, and 72 bytes of memory for each four that its kernel touches.
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
  unsigned thread;   // of its block
  const void* code;  // the instruction behind the access
};

struct Race {
  std::string kernel;  // as its launch names it
  bool shared;         // memory of a block; else global
  const void* address;
  RaceAccess first, second;
};

class RaceCheck {
 public:
  // Whether this build's kernels report what they access: builds with a sanitizer do not.
  static bool is_available();

  // One at a time on a thread.
  RaceCheck();
  ~RaceCheck();
  RaceCheck(const RaceCheck&) = delete;
  RaceCheck& operator=(const RaceCheck&) = delete;

  // Found so far, one for each pair of instructions, at most 20.
  const std::vector<Race>& races() const;

 private:
  std::unique_ptr<ShadowMemory> memory_;
};

}  // namespace trifold::cuda::emulation
