#include "conformance/racy_kernels.h"

#include "ops/cuda/kernels/tensor_copies.cuh"
#include "ops/cuda/launch.cuh"

namespace trifold::conformance {

namespace {

constexpr int kThreads = 64;

__global__ void sum_kernel(bool right, float* to, const float* from) {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = from[threadIdx.x];
  if (right) __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (int i = 0; i < kThreads; ++i) sum += tile[i];
  to[0] = sum;
}

__global__ void swap_kernel(bool right, float* to, const float* from) {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = from[threadIdx.x];
  if (right)
    __syncwarp();
  else
    __shfl_xor_sync(~0U, 0, 1);
  to[threadIdx.x] = tile[threadIdx.x ^ 1];
}

__global__ void twice_kernel(bool right, float* to, const float* from) {
  __shared__ float tile[kThreads];
  float sum = 0;
  for (int time = 0; time < 2; ++time) {
    if (right) __syncthreads();
    tile[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    sum += tile[kThreads - 1 - threadIdx.x];
  }
  to[threadIdx.x] = sum;
}

__global__ void blocks_kernel(bool right, float* to) {
  to[(right ? blockIdx.x * kThreads : 0) + threadIdx.x] = 1;
}

__global__ void everyone_kernel(bool right, float* to) {
  if (!right || threadIdx.x == 0) to[0] = 1;
}

__global__ void count_kernel(bool right, int64_t* to) {
  __shared__ int64_t count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (right)
    cuda::add_to_shared(&count, 1);
  else
    count += 1;
  __syncthreads();
  if (threadIdx.x == 0) to[0] = count;
}

__global__ void bytes_kernel(bool right, uint8_t* to) {
  __shared__ uint32_t words[kThreads / 4];
  auto* tile = reinterpret_cast<uint8_t*>(words);
  tile[threadIdx.x] = static_cast<uint8_t>(threadIdx.x);
  if (right) __syncthreads();
  to[threadIdx.x] = static_cast<uint8_t>(words[threadIdx.x / 4] >> (threadIdx.x % 4 * 8));
}

// The second warp's first lane copies, the first warp adds up. At the end both warps exchange a number by shared memory.
__global__ void boxes_kernel(BoxMistake mistake, const __grid_constant__ cuda::TensorMap map, float* to) {
  constexpr int kBoxes = 2, kRows = 8, kColumns = 32;
  alignas(1024) __shared__ float box[kRows][kColumns];
  __shared__ uint64_t full, free;
  __shared__ float last;
  if (threadIdx.x == 0) {
    cuda::init_phases(&full, 1);
    cuda::init_phases(&free, 1);
    cuda::publish_phases();
  }
  __syncthreads();
  const bool adds = threadIdx.x < kColumns;
  float sum = 0;
  for (int i = 0; i < kBoxes; ++i) {
    const auto parity = static_cast<uint32_t>(i % 2);
    if (threadIdx.x == kColumns) {
      cuda::await_phase(mistake == BoxMistake::NoWaitForReader ? &full : &free, parity ^ 1);
      cuda::arrive_expecting(&full, sizeof box);
      cuda::copy_box(cuda::shared_address(box), map, {0, 0, i}, &full);
    }
    if (!adds) continue;
    if (mistake != BoxMistake::LateWaitForBox) cuda::await_phase(&full, parity);
    for (int row = 0; row < kRows; ++row) {
      const int column = static_cast<int>(threadIdx.x);
      sum += box[row][(column / 4 ^ row) * 4 + column % 4];
    }
    if (mistake == BoxMistake::LateWaitForBox) cuda::await_phase(&full, parity);
    if (mistake != BoxMistake::EarlyArrival) __syncwarp();
    if (threadIdx.x == 0 && i + 1 < kBoxes) cuda::arrive(&free);
  }
  if (threadIdx.x == kColumns + 1) last = 1;
  if (mistake != BoxMistake::TooFewThreads)
    cuda::await_threads<2 * kColumns>(1);
  else if (adds)
    cuda::await_threads<kColumns>(1);
  if (adds) to[threadIdx.x] = sum + last;
}

__global__ void products_kernel(bool right, const __grid_constant__ cuda::TensorMap map, float* to) {
  constexpr int kSlabBytes = 64 * 128, kGroup = 128, kBoxes = 2;
  alignas(1024) __shared__ unsigned char left[kSlabBytes];
  alignas(1024)
      __shared__ unsigned char ones[4 * kSlabBytes];  // the right operand, whose numbers do not matter
  __shared__ uint64_t full, free;
  if (threadIdx.x == 0) {
    cuda::init_phases(&full, 1);
    cuda::init_phases(&free, kGroup / 32);
    cuda::publish_phases();
  }
  __syncthreads();
  if (threadIdx.x == kGroup)
    for (int i = 0; i < kBoxes; ++i) {
      cuda::await_phase(&free, static_cast<uint32_t>(i + 1) % 2);
      cuda::arrive_expecting(&full, kSlabBytes);
      cuda::copy_box(cuda::shared_address(left), map, {0, 0, i}, &full);
    }
  if (threadIdx.x >= kGroup) return;
  cuda::WarpgroupSums sums = {};
  for (int i = 0; i < kBoxes; ++i) {
    cuda::await_phase(&full, static_cast<uint32_t>(i) % 2);
    cuda::begin_products();
    cuda::begin_product<Bfloat16, true, true>(sums, {cuda::shared_address(left), kSlabBytes},
                                              {cuda::shared_address(ones), kSlabBytes});
    cuda::commit_products();
    if (right) cuda::await_products<0>();
    __syncwarp();
    if (threadIdx.x % 32 == 0 && i + 1 < kBoxes) cuda::arrive(&free);
    if (!right) cuda::await_products<0>();
  }
  to[threadIdx.x] = sums[0][0][0];
}

}  // namespace

void multiply_boxes(bool right, float* to, const Bfloat16* from) {
  cuda::TensorMap map;
  cuda::make_tensor_map(map, from, {64, 64, 2}, 64);
  TRIFOLD_LAUNCH(products_kernel, dim3(1), dim3(160), 0, nullptr, right, map, to);
}
void sum_boxes(BoxMistake mistake, float* to, const float* from) {
  cuda::TensorMap map;
  cuda::make_tensor_map(map, from, {32, 8, 2}, 8);
  TRIFOLD_LAUNCH(boxes_kernel, dim3(1), dim3(kThreads), 0, nullptr, mistake, map, to);
}
void sum_through_shared(bool right, float* to, const float* from) {
  TRIFOLD_LAUNCH(sum_kernel, dim3(1), dim3(kThreads), 0, nullptr, right, to, from);
}
void swap_neighbours(bool right, float* to, const float* from) {
  TRIFOLD_LAUNCH(swap_kernel, dim3(1), dim3(kThreads), 0, nullptr, right, to, from);
}
void fill_twice(bool right, float* to, const float* from) {
  TRIFOLD_LAUNCH(twice_kernel, dim3(1), dim3(kThreads), 0, nullptr, right, to, from);
}
void one_place_for_all_blocks(bool right, float* to) {
  TRIFOLD_LAUNCH(blocks_kernel, dim3(3), dim3(kThreads), 0, nullptr, right, to);
}
void everyone_writes(bool right, float* to) {
  TRIFOLD_LAUNCH(everyone_kernel, dim3(1), dim3(kThreads), 0, nullptr, right, to);
}
void count_threads(bool right, int64_t* to) {
  TRIFOLD_LAUNCH(count_kernel, dim3(1), dim3(kThreads), 0, nullptr, right, to);
}
void bytes_of_words(bool right, uint8_t* to) {
  TRIFOLD_LAUNCH(bytes_kernel, dim3(1), dim3(kThreads), 0, nullptr, right, to);
}

}  // namespace trifold::conformance
