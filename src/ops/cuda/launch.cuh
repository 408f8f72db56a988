// The common header of all kernel files (.cu), and the rules for writing and launching a kernel:
//
//   * A .cu file holds kernels and the functions that launch them. The functions take a CudaStream first, then raw
//     pointers and counts, and are declared in a header that ordinary code can include. A .cu file includes few of
//     the project's headers, because nvcc reads them once per architecture.
//   * The OpTable's entries (src/ops/cuda/*.cpp, compiled by the host compiler) take tensors, choose the
//     type and pass the launch to `enqueue` (ops/cuda/enqueue.h), which also reports failed launches.
//   * Kernels are launched with TRIFOLD_LAUNCH only, so that the file also compiles for the CPU under an
//     emulation of blocks and warps; TRIFOLD_CUDA_EMULATION is then the emulation's header, which defines the macro.
//   * Memory is read and written 16 bytes at a time if the addresses allow it: Pack.
//   * A sum has a fixed order: no atomic additions of floats.
#pragma once

#include <cstdint>

#if defined(TRIFOLD_CUDA_EMULATION)
#include TRIFOLD_CUDA_EMULATION
#else
#include <cuda_runtime.h>

// `kernel` with template arguments in parentheses: TRIFOLD_LAUNCH((add<T>), grid, block, 0, stream, y, a, b).
#define TRIFOLD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif

#include "core/hd.h"

struct CUstream_st;

namespace trifold::cuda {

// A cudaStream_t, without CUDA's headers.
using CudaStream = CUstream_st*;

// The kSize elements that one 16-byte access of a lane moves.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

// Prefetches the line at `address` into the second-level cache.
constexpr int kLineBytes = 128;
__device__ inline void prefetch_line([[maybe_unused]] const void* address) {
#if !defined(TRIFOLD_CUDA_EMULATION)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// Atomically adds to an integer in shared memory.
__device__ inline void add_to_shared(int64_t* number, int64_t amount) {
#if defined(TRIFOLD_CUDA_EMULATION)
  __atomic_fetch_add(number, amount, __ATOMIC_RELAXED);
#else
  atomicAdd(reinterpret_cast<unsigned long long*>(number), static_cast<unsigned long long>(amount));
#endif
}

// Whether packs may be used: whether all addresses, and the length of a row, are multiples of 16 bytes.
template <class T, class... Pointers>
bool packs(int64_t columns, Pointers... arrays) {
  const uint64_t bits =
      (reinterpret_cast<uint64_t>(arrays) | ... | (static_cast<uint64_t>(columns) * sizeof(T)));
  return bits % 16 == 0;
}

}  // namespace trifold::cuda
