// Copies of boxes of tensors between global and shared memory, which one thread starts and the hardware carries out, and
// the barriers of their completion. Instructions of sm_90; names follow NVIDIA's PTX ISA, chapters "cp.async.bulk.tensor",
// "cp.reduce.async.bulk.tensor" and "mbarrier".
//
// A phase barrier is a word of shared memory. Its phases are numbered from 0; one ends when as many arrivals as
// init_phases said, and all bytes that arrivals announced, have arrived. The next begins at once, so a thread may wait
// only for the current phase or the one before it.
//
// The emulation copies as late as it may: when every thread waits. Until then the destination holds ones, as that of
// copy_async does. A box that is written to global memory is copied when it is awaited; if its shared memory was
// overwritten before, the elements become NaN.
#pragma once

#include "ops/cuda/kernels/warpgroup.cuh"

#if !defined(TRIFOLD_CUDA_EMULATION)
#include <cuda.h>
#endif

namespace trifold::cuda {

// A tensor of three dims in global memory, and the box of it that a copy moves. A row of a box has 128 bytes and begins
// at a multiple of 128 in shared memory; its 16-byte chunks are permuted as in a slab (grouped_tiles.cuh). Elements of a
// box outside the tensor are zeros in shared memory and are not written to global memory. Kernels take it as a
// __grid_constant__ argument, because its address is used.
#if defined(TRIFOLD_CUDA_EMULATION)
using TensorMap = emulation::TensorMap;
#else
using TensorMap = CUtensorMap;
#endif

// Extents are in elements, columns first; a box has 128 bytes of columns, `box_rows` rows and one matrix.
struct TensorExtents {
  int64_t columns, rows, matrices;
};

#if !defined(TRIFOLD_CUDA_EMULATION)
template <class T>
constexpr CUtensorMapDataType kTensorMapType =
    std::is_same_v<T, float>      ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    : std::is_same_v<T, Bfloat16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;

// The driver's function that makes tensor maps; null where the driver has none.
using EncodeTensorMap = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                     const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                     CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                     CUtensorMapFloatOOBfill);
inline EncodeTensorMap encode_tensor_map() {
  static const EncodeTensorMap encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                                cudaEnableDefault, &found);
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    const bool is_there = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return is_there ? reinterpret_cast<EncodeTensorMap>(function) : nullptr;
  }();
  return encode;
}
#endif

// Makes the map; 0, or the driver's error (CUresult), or kNoTensorMaps. `data` and the length of a row must be multiples of
// 16 bytes, no extent 0.
constexpr int kNoTensorMaps = -1;
template <class T>
int make_tensor_map(TensorMap& map, const T* data, const TensorExtents& extents, int box_rows) {
  constexpr int kBoxColumns = kLineBytes / static_cast<int>(sizeof(T));
#if defined(TRIFOLD_CUDA_EMULATION)
  map = {const_cast<T*>(data),
         static_cast<int>(sizeof(T)),
         {extents.columns, extents.rows, extents.matrices},
         {kBoxColumns, box_rows, 1}};
  return 0;
#else
  const EncodeTensorMap encode = encode_tensor_map();
  if (encode == nullptr) return kNoTensorMaps;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(extents.columns), static_cast<cuuint64_t>(extents.rows),
                             static_cast<cuuint64_t>(extents.matrices)};
  const cuuint64_t strides[] = {dims[0] * sizeof(T), dims[0] * dims[1] * sizeof(T)};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  return static_cast<int>(encode(&map, kTensorMapType<T>, 3, const_cast<T*>(data), dims, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
#endif
}

// ---- phase barriers ----

// One thread calls this for each barrier, then publish_phases; other threads use it after a barrier of the block.
__device__ inline void init_phases(uint64_t* barrier, int arrivals) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::init_phases(barrier, static_cast<unsigned>(arrivals));
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#endif
}
__device__ inline void publish_phases() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Arrives for all accesses of this warp before its last __syncwarp.
__device__ inline void arrive(uint64_t* barrier) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::arrive(barrier, 0);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// Arrives, and announces so many bytes of copies to this barrier.
__device__ inline void arrive_expecting(uint64_t* barrier, int bytes) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::arrive(barrier, static_cast<unsigned>(bytes));
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}

// Waits until the phase whose number has this parity, 0 or 1, has ended. Every thread that reads what arrived calls it.
__device__ inline void await_phase(uint64_t* barrier, uint32_t parity) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::await_phase(barrier, parity);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint32_t ended = 0;
  do {
    asm volatile(
        "{.reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
#endif
}

// A barrier of `Threads` threads of the block, whole warps. `number` is 1 to 15; threads that wait at the same time for
// different sets use different numbers.
template <int Threads>
__device__ inline void await_threads(int number) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::await_threads(static_cast<unsigned>(number), Threads);
#else
  asm volatile("barrier.sync %0, %1;" ::"r"(number), "n"(Threads) : "memory");
#endif
}

// ---- copies ----

// The first element of a box.
struct BoxPlace {
  int column, row, matrix;
};

// Starts to copy a box to shared memory. `arrived` counts its bytes, also those outside the tensor.
__device__ inline void copy_box(SharedAddress to, const TensorMap& map, const BoxPlace& from,
                                uint64_t* arrived) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::begin_box(reinterpret_cast<void*>(to), map, {from.column, from.row, from.matrix}, arrived);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(&map), "r"(from.column), "r"(from.row), "r"(from.matrix), "r"(shared_address(arrived))
      : "memory");
#endif
}

// Starts to write a box to global memory or, with Add, to add it to the elements there (f32; subnormal operands and results
// become zero). Threads that wrote the box have called publish_copies before a barrier with this thread.
template <bool Add>
__device__ inline void write_box(const TensorMap& map, const BoxPlace& to, SharedAddress from) {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::write_box(map, {to.column, to.row, to.matrix}, reinterpret_cast<const void*>(from), Add);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (Add)
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::
            "l"(&map),
        "r"(to.column), "r"(to.row), "r"(to.matrix), "r"(from)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
        "r"(to.column), "r"(to.row), "r"(to.matrix), "r"(from)
        : "memory");
#endif
}

// Makes a group of the boxes that this thread has begun to write since its last group.
__device__ inline void commit_boxes() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::commit_boxes();
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// Waits until all groups of this thread but the last `Pending` have been read from shared memory.
template <int Pending>
__device__ inline void await_boxes_read() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::await_boxes(Pending);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
#endif
}
// Waits until all groups of this thread are in global memory. A thread that wrote boxes ends with this.
__device__ inline void await_boxes() {
#if defined(TRIFOLD_CUDA_EMULATION)
  emulation::await_boxes(0);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

}  // namespace trifold::cuda
