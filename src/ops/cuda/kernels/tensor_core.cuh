// Tensor-core operations of a warp: asynchronous copies from global to shared memory, loads of matrix fragments from
// shared memory, and products of fragments with f32 sums. Instructions of sm_80 and newer; names and layouts follow
// NVIDIA's PTX ISA, chapters "cp.async", "ldmatrix" and "mma.m16n8k16". The emulation distributes elements over lanes
// in the same way.
#pragma once

#include <type_traits>

#include "core/float16.h"
#include "ops/cuda/launch.cuh"
#include "ops/kernels/number.h"

namespace trifold::cuda {

// An address in shared memory.
#if defined(TRIFOLD_CUDA_EMULATION)
using SharedAddress = uintptr_t;
#else
using SharedAddress = uint32_t;
#endif

// The block's dynamic shared memory, aligned to Alignment bytes, as is then the memory of all kernels of the file.
template <int Alignment = 1024>
__device__ inline SharedAddress dynamic_shared() {
#if defined(TRIFOLD_CUDA_EMULATION)
  return reinterpret_cast<SharedAddress>(emulation::dynamic_shared);
#else
  extern __shared__ __align__(Alignment) unsigned char memory[];
  return static_cast<SharedAddress>(__cvta_generic_to_shared(memory));
#endif
}

// The address of a variable in shared memory.
__device__ inline SharedAddress shared_address(void* variable) {
#if defined(TRIFOLD_CUDA_EMULATION)
  return reinterpret_cast<SharedAddress>(variable);
#else
  return static_cast<SharedAddress>(__cvta_generic_to_shared(variable));
#endif
}

// Starts to copy 16 bytes or, unless `exists`, to set them to zero; `from` may then be any address. Otherwise both
// addresses must be multiples of 16.
__device__ inline void copy_async(SharedAddress to, const void* from, bool exists) {
  const uint32_t bytes = exists ? 16 : 0;
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::begin_copy(reinterpret_cast<void*>(to), from, bytes);
#else
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
#endif
}

// Loads 16 bytes of shared memory from a multiple of 16.
__device__ inline uint4 load_shared(SharedAddress from) {
#if defined(TRIFOLD_CUDA_EMULATION)
  return *reinterpret_cast<const uint4*>(from);
#else
  uint4 word;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "r"(from)
               : "memory");
  return word;
#endif
}

// Stores 16, or 8, bytes to shared memory at a multiple of as many.
__device__ inline void store_shared(SharedAddress to, const uint4& word) {
#if defined(TRIFOLD_CUDA_EMULATION)
  *reinterpret_cast<uint4*>(to) = word;
#else
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word.x), "r"(word.y), "r"(word.z),
               "r"(word.w)
               : "memory");
#endif
}
__device__ inline void store_shared(SharedAddress to, float low, float high) {
#if defined(TRIFOLD_CUDA_EMULATION)
  reinterpret_cast<float*>(to)[0] = low;
  reinterpret_cast<float*>(to)[1] = high;
#else
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(low), "f"(high) : "memory");
#endif
}

// Makes a group of this thread's copies since the last group.
__device__ inline void commit_copies() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread but the last `Pending`. Other threads see the copied bytes after a barrier.
template <int Pending>
__device__ inline void await_copies() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::await_copies(Pending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// Loads four matrices of 8 x 8 16-bit elements. Lane l passes the address of row l % 8 (16 bytes) of matrix l / 8. It
// receives, in to[i], elements (l / 4, 2 (l % 4)), in the lower half, and (l / 4, 2 (l % 4) + 1) of matrix i or, if
// Transposed, of its transpose.
template <bool Transposed>
__device__ inline void load_matrices(uint32_t (&to)[4], SharedAddress row) {
#if defined(TRIFOLD_CUDA_EMULATION)
  const uint64_t* rows = emulation::exchange(row);
  const unsigned lane = emulation::lane();
  for (unsigned i = 0; i < 4; ++i) {
    const auto number = [&](unsigned r, unsigned c) {
      return uint32_t{
          reinterpret_cast<const uint16_t*>(emulation::lane_value<SharedAddress>(rows, 8 * i + r))[c]};
    };
    const unsigned one = lane / 4, two = lane % 4 * 2;
    to[i] = Transposed ? number(two, one) | number(two + 1, one) << 16
                       : number(one, two) | number(one, two + 1) << 16;
  }
#else
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#endif
}

// d += a b, where a is 16 x 16, b is 16 x 8 and d is 16 x 8. With g = lane / 4 and t = lane % 4 a lane holds the
// elements below: of a and b two in a register, the first in the lower half.
//   a[0]  (g, 2t) (g, 2t+1)      a[1]  rows + 8     a[2]  columns + 8    a[3]  rows + 8, columns + 8
//   b[0]  (2t, g) (2t+1, g)      b[1]  rows + 8
//   d[0]  (g, 2t)   d[1]  (g, 2t+1)   d[2]  (g+8, 2t)   d[3]  (g+8, 2t+1)
template <class T>
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::Fragments mine;
  const auto half = [](uint32_t pair, int which) {
    T number;
    number.bits = static_cast<uint16_t>(pair >> 16 * which);
    return cpu::value(number);
  };
  for (int which = 0; which < 2; ++which) {
    for (int i = 0; i < 4; ++i) mine.a[i][which] = half(a[i], which);
    mine.b[0][which] = half(b0, which);
    mine.b[1][which] = half(b1, which);
  }
  emulation::multiply(d, mine);
#else
  if constexpr (std::is_same_v<T, Bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// The number of multiprocessors of the current device; two under the emulation.
inline int multiprocessors() {
#if defined(TRIFOLD_CUDA_EMULATION)
  return 2;
#else
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
#endif
}

// The static shared memory of a kernel with dynamic memory, at most.
constexpr int kOwnShared = 2048;

// The dynamic shared memory that a block may have on the current device, in addition to kOwnShared.
inline int64_t most_dynamic_shared() {
#if defined(TRIFOLD_CUDA_EMULATION)
  return static_cast<int64_t>(emulation::kMostDynamicShared) - kOwnShared;
#else
  int device = 0, bytes = 48 << 10;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes - kOwnShared;
#endif
}

// Allows launches of `kernel` with `bytes` of dynamic shared memory, which the device must support.
template <class Kernel>
void allow_dynamic_shared([[maybe_unused]] Kernel kernel, [[maybe_unused]] int bytes) {
#if !defined(TRIFOLD_CUDA_EMULATION)
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
#endif
}

}  // namespace trifold::cuda
