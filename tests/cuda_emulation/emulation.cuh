// An emulation of CUDA's blocks and warps on one CPU core, so that the kernels of ops/cuda/kernels can be run
// and tested without a GPU. ops/cuda/launch.cuh includes this instead of CUDA's header if
// TRIFOLD_CUDA_EMULATION is defined.
//
// Blocks run one after another; the threads of a block are fibers that yield to each other at barriers and at
// warp exchanges. The emulation finds wrong indices and sums, threads that miss a barrier (an Error) and,
// because the order of threads between barriers can be changed (`thread_order`), most missing barriers; a
// RaceCheck (race_check.h) finds all that a launch needs. It cannot find races within one access, or problems
// of real memory ordering and speed.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/function_ref.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
// Blocks run one after another, so they can share one memory; fibers stay on their thread.
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  // NOLINTNEXTLINE(google-explicit-constructor): as in CUDA
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

// NOLINTEND(readability-identifier-naming)

namespace trifold::cuda::emulation {

struct Place {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
extern thread_local Place place;  // of the running CUDA thread

// The order of a block's threads between two barriers: 0 from the first, 1 from the last, other values a mixed
// order. Results must not depend on it.
extern thread_local int thread_order;

// Runs `thread` for every thread of the grid. `kernel` is its name, for reports.
void launch(dim3 grid, dim3 block, FunctionRef<void()> thread, const char* kernel = "a function");

// Yields until all threads of the block, or the 32 of the warp, have arrived: barriers for memory as well.
void await_block();
void await_warp();

// The `bits` of all lanes of the warp: every lane stores its own, and reads after all have stored. Slots are
// used alternately, so one wait suffices. Does not order memory accesses.
uint64_t* leave_for_warp(uint64_t bits);

template <class T>
T lane_value(const uint64_t* slots, unsigned lane) {
  T result;
  std::memcpy(&result, &slots[lane], sizeof(T));
  return result;
}
template <class T>
const uint64_t* exchange(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return leave_for_warp(bits);
}
unsigned lane();

// The operands that a lane holds of a warp's matrix product, mma.m16n8k16: a[i][0] and a[i][1] are the lower and the
// upper number of register i.
struct Fragments {
  float a[4][2], b[2][2];
};
// d += a b, of all lanes of the warp.
void multiply(float (&d)[4], const Fragments& mine);

// To be called before a store whose instruction is for global memory alone: a RaceCheck reports it where `to` is in
// shared memory.
void expect_global(const void* to);

// Copies to shared memory that a thread waits for later (cp.async). Until then the destination has no defined
// value: it is filled with ones at once, so that a reader of the earlier value fails, and gets its value, the
// `bytes` at `from` followed by zeros, when the thread waits, so that a reader that comes too early fails as well.
void begin_copy(void* to, const void* from, size_t bytes);
void commit_copies();
void await_copies(unsigned pending);  // all groups but the last `pending`

// An operand of a product of warpgroups (kernels/warpgroup.cuh).
struct SharedMatrix {
  uintptr_t address;
  int slab;
  bool along;  // the rows, the summed index
};
// d[128] += left right^T of 64 x 16 and 256 x 16 numbers, for the sums that a thread holds: at the wait.
void begin_product(float* d, const SharedMatrix& left, const SharedMatrix& right, float (*wide)(uint16_t));
void commit_products();
void await_products(unsigned pending);  // all groups but the last `pending`

// A barrier of `count` threads that pass the same number (barrier.sync). They are whole warps.
void await_threads(unsigned number, unsigned count);

// Phase barriers (mbarrier), which the emulation knows by their address. An arrival orders accesses of its warp before the
// last __syncwarp, and copies to the barrier; a wait orders later accesses of its thread after the arrivals of ended phases.
void init_phases(const uint64_t* barrier, unsigned arrivals);
void arrive(const uint64_t* barrier, unsigned expected_bytes);
void await_phase(const uint64_t* barrier, unsigned parity);

// A tensor of three dims, columns first, and the box of it that a copy moves (cp.async.bulk.tensor). A row of a box has
// 128 bytes, and its 16-byte chunk c is at chunk c ^ (bits 7 to 9 of its address).
struct TensorMap {
  void* data;
  int element_bytes;
  int64_t extents[3];
  int box[3];
};
struct BoxCorner {
  int at[3];
};
// Copies a box to shared memory: when no thread can go on otherwise, the last begun first if `thread_order` is odd. Until
// then the destination is filled with ones.
void begin_box(void* to, const TensorMap& map, const BoxCorner& corner, const uint64_t* barrier);
// Writes a box to global memory or adds it: when it is awaited. If shared memory has changed by then, the numbers are NaN.
void write_box(const TensorMap& map, const BoxCorner& corner, const void* from, bool add);
void commit_boxes();
void await_boxes(unsigned pending);  // all groups but the last `pending`

// The memory of a block whose size the launch determines.
constexpr size_t kMostDynamicShared = 227 << 10;
extern thread_local unsigned char dynamic_shared[kMostDynamicShared];

}  // namespace trifold::cuda::emulation

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
#define threadIdx trifold::cuda::emulation::place.thread
#define blockIdx trifold::cuda::emulation::place.block
#define blockDim trifold::cuda::emulation::place.block_size
#define gridDim trifold::cuda::emulation::place.grid_size

inline void __syncthreads() { trifold::cuda::emulation::await_block(); }
inline void __syncwarp() { trifold::cuda::emulation::await_warp(); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  using namespace trifold::cuda::emulation;
  return lane_value<T>(exchange(value), lane() ^ static_cast<unsigned>(mask));
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  using namespace trifold::cuda::emulation;
  return lane_value<T>(exchange(value), lane() < delta ? lane() : lane() - delta);
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  using namespace trifold::cuda::emulation;
  return lane_value<T>(exchange(value), static_cast<unsigned>(from) % 32);
}
template <class T>
unsigned __match_any_sync(unsigned, T value) {
  using namespace trifold::cuda::emulation;
  const uint64_t* slots = exchange(value);
  unsigned same = 0;
  for (unsigned i = 0; i < 32; ++i) same |= static_cast<unsigned>(lane_value<T>(slots, i) == value) << i;
  return same;
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  using namespace trifold::cuda::emulation;
  const uint64_t* slots = exchange(vote);
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; ++i) votes |= static_cast<unsigned>(lane_value<bool>(slots, i)) << i;
  return votes;
}
inline long long __double_as_longlong(double number) {
  long long bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

#define TRIFOLD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (static_cast<void>(stream), trifold::cuda::emulation::launch(        \
                                  grid, block, [&] { kernel(__VA_ARGS__); }, #kernel))
// NOLINTEND(readability-identifier-naming)
