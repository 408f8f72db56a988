// The emulation of tensor cores against the tables of NVIDIA's PTX ISA, and products of experts that use them.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "conformance/op_table.h"
#include "ops/cuda/emulation/emulated_ops.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/tensor_core.cuh"

namespace trifold::conformance {
namespace {

using cuda::SharedAddress;

constexpr unsigned kLanes = 32;

void in_a_warp(FunctionRef<void()> body) { cuda::emulation::launch(dim3(1), dim3(kLanes), body); }

template <class T>
std::vector<T> rounded(const Values& values) {
  std::vector<T> result;
  for (const double value : values) result.push_back(T(value));
  return result;
}
Values widened(const std::vector<Bfloat16>& numbers) { return {numbers.begin(), numbers.end()}; }

// Element i of the eight that a lane holds of a, "Matrix fragments for mma.m16n8k16 with floating point type": of b, the
// first four columns of the table; of d likewise.
struct Place {
  unsigned row, column;
};
Place place_in_a(unsigned lane, unsigned i) {
  return {lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8), lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)};
}
Place place_in_b(unsigned lane, unsigned i) { return {lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8), lane / 4}; }
Place place_in_d(unsigned lane, unsigned i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + i % 2}; }

template <class T>
void expect_product() {
  const Values a = whole(16 * 16, 1, 9), b = whole(16 * 8, 2, 9);
  Values got(16 * 8, -1);
  in_a_warp([&] {
    const unsigned lane = threadIdx.x;
    std::array<T, 8> of_a;
    std::array<T, 4> of_b;
    for (unsigned i = 0; i < 8; ++i) {
      const Place at = place_in_a(lane, i);
      of_a[i] = T(a[at.row * 16 + at.column]);
    }
    for (unsigned i = 0; i < 4; ++i) {
      const Place at = place_in_b(lane, i);
      of_b[i] = T(b[at.row * 8 + at.column]);
    }
    uint32_t words[4], more[2];
    std::memcpy(words, of_a.data(), sizeof words);
    std::memcpy(more, of_b.data(), sizeof more);
    float d[4];
    for (unsigned i = 0; i < 4; ++i) d[i] = static_cast<float>(i);
    cuda::multiply<T>(d, words, more[0], more[1]);
    for (unsigned i = 0; i < 4; ++i) {
      const Place at = place_in_d(lane, i);
      got[at.row * 8 + at.column] = static_cast<double>(d[i]) - i;
    }
  });
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      double sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[k * 8 + column];
      EXPECT_EQ(got[row * 8 + column], sum) << row << ", " << column;
    }
}

TEST(TensorCore, MultipliesMatricesDistributedAsTheIsaSays) {
  expect_product<Bfloat16>();
  expect_product<Float16>();
}

TEST(TensorCore, LoadsMatricesAsTheIsaSays) {
  // Matrix i at 128 i, its rows in an order of their own.
  alignas(16) uint16_t memory[4][8][8];
  const auto row_of = [](unsigned i, unsigned r) { return (r + i) % 8; };
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned r = 0; r < 8; ++r)
      for (unsigned c = 0; c < 8; ++c) memory[i][row_of(i, r)][c] = static_cast<uint16_t>(i * 64 + r * 8 + c);
  uint32_t plain[kLanes][4], transposed[kLanes][4];
  in_a_warp([&] {
    const unsigned lane = threadIdx.x;
    const auto row = reinterpret_cast<SharedAddress>(memory[lane / 8][row_of(lane / 8, lane % 8)]);
    cuda::load_matrices<false>(plain[lane], row);
    cuda::load_matrices<true>(transposed[lane], row);
  });
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned row = lane / 4, column = lane % 4 * 2 + half;
        EXPECT_EQ(plain[lane][i] >> 16 * half & 0xffff, i * 64 + row * 8 + column);
        EXPECT_EQ(transposed[lane][i] >> 16 * half & 0xffff, i * 64 + column * 8 + row);
      }
}

// The destination is neither what it was nor what it will be.
TEST(TensorCore, CopiesArriveWhenTheyAreAwaited) {
  alignas(16) std::array<uint8_t, 16> from, to[3] = {};
  from.fill(7);
  cuda::emulation::launch(dim3(1), dim3(1), [&] {
    for (auto& one : to) {
      cuda::copy_async(reinterpret_cast<SharedAddress>(one.data()), from.data(), &one != &to[1]);
      cuda::commit_copies();
      EXPECT_EQ(one[15], 0xff);
    }
    cuda::await_copies<1>();
    EXPECT_EQ(to[0][15], 7);
    EXPECT_EQ(to[1][15], 0);
    EXPECT_EQ(to[2][15], 0xff);
    cuda::await_copies<0>();
    EXPECT_EQ(to[2][15], 7);
  });
}

// ---- products ----

struct Experts {
  static constexpr int64_t kColumns = 8, kInner = 72;
  std::vector<Bfloat16> w = rounded<Bfloat16>(normal(2 * kColumns * kInner, 1));

  Values product(const std::vector<Bfloat16>& x, const std::vector<int32_t>& first) const {
    std::vector<Bfloat16> y(x.size() / kInner * kColumns);
    EXPECT_TRUE(cuda::grouped_product<Bfloat16>(nullptr, y.data(), x.data(), w.data(), first.data(),
                                                static_cast<int64_t>(x.size()) / kInner, 2, kColumns, kInner,
                                                true));
    return widened(y);
  }
};

TEST(ExpertProducts, BitsOfARowDoNotDependOnTheOthersNorOnTheOrderOfThreads) {
  const Experts experts;
  const std::vector<Bfloat16> x = rounded<Bfloat16>(normal(133 * Experts::kInner, 2));
  const Values all = experts.product(x, {0, 130, 133});
  for (const int order : {1, 5}) {
    cuda::set_thread_order(order);
    EXPECT_EQ(experts.product(x, {0, 130, 133}), all);
  }
  cuda::set_thread_order(0);
  // Rows 127 to 129 alone, and with the second expert's.
  const auto three = x.begin() + 127 * Experts::kInner;
  const Values some = experts.product({three, x.end()}, {0, 3, 6});
  EXPECT_EQ(some, Values(all.begin() + 127 * Experts::kColumns, all.end()));
  EXPECT_EQ(experts.product({three, three + 3 * Experts::kInner}, {0, 3, 3}),
            Values(some.begin(), some.begin() + 3 * Experts::kColumns));
}

// Two columns of more tiles than are computed together: every one is, and once.
TEST(ExpertProducts, GradientsOfManyTilesAreWhole) {
  constexpr int64_t kRows = 17 * 128 + 8, kColumns = 264;
  const Values dy = whole(kRows, 1, 9), x = whole(kColumns, 2, 9);
  const auto left = rounded<Bfloat16>(dy), right = rounded<Bfloat16>(x);
  const std::vector<int32_t> first{0, 1};
  std::vector<float> dw(kRows * kColumns, 1);
  ASSERT_TRUE(cuda::grouped_product_weight<Bfloat16>(nullptr, dw.data(), left.data(), right.data(),
                                                     first.data(), 1, kRows, kColumns, true));
  for (size_t i = 0; i < dw.size(); ++i)
    ASSERT_EQ(dw[i], 1 + dy[i / kColumns] * x[i % kColumns]) << i / kColumns << ", " << i % kColumns;
}

TEST(ExpertProducts, WhatFitsNoTensorCoreIsLeftToOthers) {
  std::vector<Float16> numbers(64);
  std::vector<float> dw(64);
  const std::vector<int32_t> first{0, 1};
  Float16* const x = numbers.data();
  EXPECT_FALSE(cuda::grouped_product<Float16>(nullptr, x, x, x, first.data(), 1, 1, 8, 12, true));
  EXPECT_FALSE(cuda::grouped_product<Float16>(nullptr, x, x, x, first.data(), 1, 1, 12, 8, false));
  EXPECT_FALSE(cuda::grouped_product<Float16>(nullptr, x + 16, x, x + 4, first.data(), 1, 1, 8, 8, true));
  EXPECT_FALSE(
      cuda::grouped_product_weight<Float16>(nullptr, dw.data(), x, x + 1, first.data(), 1, 8, 8, false));
}

}  // namespace
}  // namespace trifold::conformance
