// Tensor-core products of a warpgroup, with both operands in shared memory. A warpgroup is four consecutive warps, the
// first of which has an index that is a multiple of four. Instructions of sm_90a, chapters "wgmma" and "Asynchronous
// warpgroup level matrix instructions" of the PTX ISA. Products are asynchronous; the thread that begins one must await
// it. The emulation computes a product when it is begun and again when it is awaited. If the two differ, because an
// operand was written too late or overwritten too early, the result is NaN.
#pragma once

#include "ops/cuda/kernels/tensor_core.cuh"

#if defined(TRIFOLD_CUDA_EMULATION) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TRIFOLD_HAS_WARPGROUPS 1
#endif

namespace trifold::cuda {

// An operand in shared memory, in rows of 64 elements (128 bytes); the 16-byte chunk c of row r is at chunk c ^ (r %
// 8). If the operand is Along, a row runs along the summed index, and consecutive rows are consecutive values of the
// other index. Otherwise a row holds 64 values of the other index for one value of the summed index, and the next 64
// values are `slab` bytes further.
struct SharedOperand {
  SharedAddress address;  // its first chunk; the slab begins at a multiple of 1024
  int slab;
};

// The 64-bit matrix descriptor of an operand: its address (from bit 0), `slab` ("leading dimension", from bit 16), the
// distance of eight rows ("stride", from bit 32), all in units of 16 bytes, and the permutation of chunks described
// above (128-byte swizzle: 1, from bit 62).
HD constexpr uint64_t matrix_descriptor(uint32_t address, int slab) {
  constexpr uint64_t kEightRows = 8 * 128 / 16;
  return (address & 0x3ffffU) >> 4 | static_cast<uint64_t>(slab / 16) << 16 | kEightRows << 32 |
         uint64_t{1} << 62;
}

// Makes shared memory written by copies that this thread has awaited visible to products that begin after the next
// barrier.
__device__ inline void publish_copies() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// All threads of the warpgroup must call this between writing registers of sums and the next product.
__device__ inline void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Makes a group of the products since the last group.
__device__ inline void commit_products() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::commit_products();
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits for all groups but the last `Pending`.
template <int Pending>
__device__ inline void await_products() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::await_products(Pending);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#endif
}

// A thread's part of 64 x 256 sums. With g = lane / 4, t = lane % 4 and w the index of the warp in its group, [c][j][0]
// and [c][j][1] are in row 16 w + g and columns 64 c + 8 j + 2t and 64 c + 8 j + 2t + 1; [c][j][2] and [c][j][3] are in
// row 16 w + g + 8 and the same columns.
using WarpgroupSums = float[4][8][4];

// Begins d += left right^T for 16 values of the summed index; left is 64 x 16, right 256 x 16.
template <class T, bool LeftAlong, bool RightAlong>
__device__ inline void begin_product(WarpgroupSums& d, const SharedOperand& left,
                                     const SharedOperand& right) {
#if defined(TRIFOLD_CUDA_EMULATION)
  const auto wide = [](uint16_t bits) {
    T number;
    number.bits = bits;
    return cpu::value(number);
  };
  emulation::begin_product(&d[0][0][0], {left.address, left.slab, LeftAlong},
                           {right.address, right.slab, RightAlong}, wide);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TRIFOLD_EIGHT(c, j)                                                                     \
  "+f"(d[c][j][0]), "+f"(d[c][j][1]), "+f"(d[c][j][2]), "+f"(d[c][j][3]), "+f"(d[c][j + 1][0]), \
      "+f"(d[c][j + 1][1]), "+f"(d[c][j + 1][2]), "+f"(d[c][j + 1][3])
#define TRIFOLD_THIRTY_TWO(c) \
  TRIFOLD_EIGHT(c, 0), TRIFOLD_EIGHT(c, 2), TRIFOLD_EIGHT(c, 4), TRIFOLD_EIGHT(c, 6)
#define TRIFOLD_MULTIPLY(type)                                                                              \
  asm volatile(                                                                                             \
      "{.reg .pred adds;\n"                                                                                 \
      "setp.ne.b32 adds, 1, 0;\n"                                                                           \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                          \
      " {"                                                                                                  \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                              \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                    \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                    \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                    \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                    \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "        \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"      \
      "}, %128, %129, adds, 1, 1, %130, %131;}"                                                             \
      : TRIFOLD_THIRTY_TWO(0), TRIFOLD_THIRTY_TWO(1), TRIFOLD_THIRTY_TWO(2), TRIFOLD_THIRTY_TWO(3)          \
      : "l"(matrix_descriptor(left.address, left.slab)), "l"(matrix_descriptor(right.address, right.slab)), \
        "n"(LeftAlong ? 0 : 1), "n"(RightAlong ? 0 : 1))
  if constexpr (std::is_same_v<T, Bfloat16>)
    TRIFOLD_MULTIPLY("bf16");
  else
    TRIFOLD_MULTIPLY("f16");
#undef TRIFOLD_MULTIPLY
#undef TRIFOLD_THIRTY_TWO
#undef TRIFOLD_EIGHT
#endif
}

// Keeps the compiler from moving reads or writes of the sums across this call. Call it after awaiting all products and
// before using the sums.
__device__ inline void hold(WarpgroupSums& d) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma unroll
  for (auto& columns : d)
#pragma unroll
    for (auto& four : columns)
      asm volatile("" : "+f"(four[0]), "+f"(four[1]), "+f"(four[2]), "+f"(four[3])::"memory");
#else
  static_cast<void>(d);
#endif
}

}  // namespace trifold::cuda
