// The emulation of copies of boxes against the PTX ISA: which numbers they move, where to, and when.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_emulation/emulation.cuh"
#include "ops/cuda/kernels/tensor_copies.cuh"

namespace trifold::conformance {
namespace {

using cuda::SharedAddress;
using cuda::TensorMap;

constexpr int kBoxRows = 8;
constexpr int kTensorRows = 5, kTensorMatrices = 2;

// A box of numbers in shared memory. As "Shared memory swizzling" has it for 128 bytes, the 16-byte chunk c of row r is at
// chunk c ^ r.
template <class T>
struct SharedBox {
  static constexpr size_t kColumns = 128 / sizeof(T);
  static constexpr size_t kChunk = 16 / sizeof(T);
  alignas(1024) std::array<T, kBoxRows * kColumns> numbers;
  T& at(size_t row, size_t column) {
    return numbers[row * kColumns + (column / kChunk ^ row % 8) * kChunk + column % kChunk];
  }
  SharedAddress address() { return reinterpret_cast<SharedAddress>(numbers.data()); }
};

Bfloat16 bits_of(size_t i) {
  Bfloat16 number;
  number.bits = static_cast<uint16_t>(i);
  return number;
}

// What lies behind a row, behind the rows of a matrix and behind the last matrix is zero in the box.
TEST(TensorCopies, BoxesArriveWithZerosOutsideTheTensor) {
  constexpr size_t kColumns = 72, kFirst = 16, kFirstRow = 3;
  std::vector<Bfloat16> tensor(kTensorMatrices * kTensorRows * kColumns);
  for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = bits_of(i + 1);
  TensorMap map;
  ASSERT_EQ(cuda::make_tensor_map(map, tensor.data(), {kColumns, kTensorRows, kTensorMatrices}, kBoxRows), 0);
  static SharedBox<Bfloat16> box;
  static uint64_t barrier;
  for (const size_t matrix : {0, 1, 2}) {
    box.numbers.fill(bits_of(7));
    cuda::emulation::launch(dim3(1), dim3(1), [&] {
      cuda::init_phases(&barrier, 1);
      cuda::arrive_expecting(&barrier, sizeof box.numbers);
      cuda::copy_box(box.address(), map, {kFirst, kFirstRow, static_cast<int>(matrix)}, &barrier);
      EXPECT_EQ(box.at(0, 0).bits, 0xffff);  // neither what was there nor what will be
      cuda::await_phase(&barrier, 0);
    });
    for (size_t row = 0; row < kBoxRows; ++row)
      for (size_t column = 0; column < box.kColumns; ++column) {
        const size_t r = kFirstRow + row, c = kFirst + column;
        const bool inside = r < kTensorRows && c < kColumns && matrix < kTensorMatrices;
        ASSERT_EQ(box.at(row, column).bits, inside ? ((matrix * kTensorRows + r) * kColumns + c + 1) : 0)
            << row << ", " << column;
      }
  }
}

// A phase ends with the last arrival or the last byte, whichever is later; waits for ended phases return at once.
TEST(TensorCopies, APhaseEndsWithAllArrivalsAndBytes) {
  std::vector<float> tensor(8 * 32, 1);
  TensorMap map;
  ASSERT_EQ(cuda::make_tensor_map(map, tensor.data(), {32, 8, 1}, kBoxRows), 0);
  static SharedBox<float> one, two;
  static uint64_t barrier;
  std::array<int, 2> order{};
  int next = 0;
  cuda::emulation::launch(dim3(1), dim3(64), [&] {
    if (threadIdx.x == 0) cuda::init_phases(&barrier, 2);
    __syncthreads();
    if (threadIdx.x == 0) {
      cuda::await_phase(&barrier, 1);  // the phase before the first
      cuda::arrive_expecting(&barrier, sizeof one.numbers);
      cuda::copy_box(one.address(), map, {0, 0, 0}, &barrier);
      cuda::await_phase(&barrier, 0);
      order[0] = ++next;
      EXPECT_EQ(one.at(7, 31), 1);
      EXPECT_EQ(two.at(7, 31), 1);
    }
    if (threadIdx.x == 32) {
      cuda::arrive_expecting(&barrier, sizeof two.numbers);
      order[1] = ++next;
      cuda::copy_box(two.address(), map, {0, 0, 0}, &barrier);
    }
  });
  EXPECT_EQ(order[1], 1);
  EXPECT_EQ(order[0], 2);
}

std::vector<float> tensor_after_write(bool add, bool too_early, float number) {
  constexpr int kColumns = 40;
  std::vector<float> tensor(kTensorMatrices * kTensorRows * kColumns, 0.5F);
  TensorMap map;
  EXPECT_EQ(cuda::make_tensor_map(map, tensor.data(), {kColumns, kTensorRows, kTensorMatrices}, kBoxRows), 0);
  static SharedBox<float> box;
  for (size_t row = 0; row < kBoxRows; ++row)
    for (size_t column = 0; column < box.kColumns; ++column)
      box.at(row, column) = number * static_cast<float>(row * 100 + column);
  cuda::emulation::launch(dim3(1), dim3(1), [&] {
    if (add)
      cuda::write_box<true>(map, {16, 2, 0}, box.address());
    else
      cuda::write_box<false>(map, {16, 2, 0}, box.address());
    cuda::commit_boxes();
    EXPECT_EQ(tensor[2 * kColumns + 17], 0.5F);  // not before it is awaited
    if (too_early) box.at(0, 1) = 3;
    cuda::await_boxes_read<1>();  // none but the last
    cuda::await_boxes();
  });
  return tensor;
}

TEST(TensorCopies, BoxesAreWrittenOrAddedInsideTheTensorAlone) {
  for (const bool add : {false, true}) {
    const std::vector<float> tensor = tensor_after_write(add, false, 1);
    for (size_t i = 0; i < tensor.size(); ++i) {
      const size_t row = i / 40, column = i % 40;
      const bool inside = row >= 2 && row < kTensorRows && column >= 16;
      const float number = inside ? static_cast<float>((row - 2) * 100 + column - 16) : 0;
      ASSERT_EQ(tensor[i], inside ? number + (add ? 0.5F : 0) : 0.5F) << row << ", " << column;
    }
  }
}

TEST(TensorCopies, ABoxThatChangesWhileItIsWrittenIsNoNumber) {
  EXPECT_TRUE(std::isnan(tensor_after_write(true, true, 1)[2 * 40 + 16]));
  EXPECT_TRUE(std::isnan(tensor_after_write(false, true, 1)[2 * 40 + 16]));
}

// Red.add.f32 on global memory flushes subnormal numbers, as the PTX ISA says. It does not say so of additions of boxes,
// which the emulation takes to be the same; the probe of a card prints what they do (tests/cuda/expert_probe.cpp).
TEST(TensorCopies, SubnormalSumsBecomeZero) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(tensor_after_write(false, false, kTiny)[2 * 40 + 17], kTiny);
  std::vector<float> sum(32, std::numeric_limits<float>::min());
  TensorMap map;
  ASSERT_EQ(cuda::make_tensor_map(map, sum.data(), {32, 1, 1}, 1), 0);
  alignas(1024) static std::array<float, 32> box;
  box.fill(-std::numeric_limits<float>::min() * 1.5F);
  cuda::emulation::launch(dim3(1), dim3(1), [&] {
    cuda::write_box<true>(map, {0, 0, 0}, reinterpret_cast<SharedAddress>(box.data()));
    cuda::commit_boxes();
    cuda::await_boxes();
  });
  EXPECT_EQ(sum[5], 0);
  EXPECT_TRUE(std::signbit(sum[5]));
}

}  // namespace
}  // namespace trifold::conformance
