// The emulation of tensor cores against the tables of NVIDIA's PTX ISA, and products of experts that use them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/op_table.h"
#include "conformance/race_report.h"
#include "cuda_emulation/emulated_ops.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/tensor_core.cuh"
#include "ops/cuda/kernels/warpgroup.cuh"

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

// As "Shared memory matrix layout" has it for an exchange of chunks over 128 bytes, in units of 16 bytes.
TEST(TensorCore, DescribesOperandsInSharedMemory) {
  const uint64_t all = cuda::matrix_descriptor(0x3f0420, 8192);
  EXPECT_EQ(all & 0x3fff, 0x3f042U & 0x3fff);  // bits 0 to 13
  EXPECT_EQ(all >> 16 & 0x3fff, 512U);         // leading dimension
  EXPECT_EQ(all >> 32 & 0x3fff, 64U);          // stride
  EXPECT_EQ(all >> 62, 1U);
  EXPECT_EQ(all & ~(0x3fffULL | 0x3fffULL << 16 | 0x3fffULL << 32 | 3ULL << 62), 0U);
}

constexpr size_t kRowNumbers = 64;

// Number (other, k) in rows of 64 numbers: canonical layouts of K-major and MN-major operands, swizzled over 128 bytes.
size_t place_in_shared(bool along, size_t other, size_t k) {
  const size_t row = along ? other : other / kRowNumbers * 64 + k;
  const size_t column = along ? k : other % kRowNumbers;
  return row * kRowNumbers + (column / 8 ^ row % 8) * 8 + column % 8;
}

template <bool LeftAlong, bool RightAlong>
void expect_warpgroup_product() {
  constexpr size_t kDepth = 64;  // the second 16 of which are multiplied
  const Values left = whole(64 * kDepth, 1, 9), right = whole(256 * kDepth, 2, 9);
  alignas(1024) static std::array<Bfloat16, 64 * kDepth> a;
  alignas(1024) static std::array<Bfloat16, 256 * kDepth> b;
  for (size_t other = 0; other < 256; ++other)
    for (size_t k = 0; k < kDepth; ++k) {
      if (other < 64) a[place_in_shared(LeftAlong, other, k)] = Bfloat16(left[other * kDepth + k]);
      b[place_in_shared(RightAlong, other, k)] = Bfloat16(right[other * kDepth + k]);
    }
  Values got(64 * 256, -1);
  cuda::emulation::launch(dim3(1), dim3(128), [&] {
    cuda::WarpgroupSums sums;
    for (auto& columns : sums)
      for (auto& four : columns)
        for (float& sum : four) sum = 1;
    const auto step = [](bool along) { return along ? 32 : 16 * 128; };
    cuda::begin_product<Bfloat16, LeftAlong, RightAlong>(
        sums, {reinterpret_cast<SharedAddress>(a.data()) + step(LeftAlong), 64 * 128},
        {reinterpret_cast<SharedAddress>(b.data()) + step(RightAlong), 64 * 128});
    cuda::commit_products();
    EXPECT_EQ(sums[0][0][0], 1);  // not before it is awaited
    cuda::await_products<0>();
    const unsigned warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    for (unsigned i = 0; i < 128; ++i) {  // d[i] of the table
      const unsigned row = warp * 16 + lane / 4 + (i % 4 < 2 ? 0 : 8);
      const unsigned column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      got[row * 256 + column] = static_cast<double>(sums[i / 32][i / 4 % 8][i % 4]) - 1;
    }
  });
  for (size_t row = 0; row < 64; ++row)
    for (size_t column = 0; column < 256; ++column) {
      double sum = 0;
      for (size_t k = 16; k < 32; ++k) sum += left[row * kDepth + k] * right[column * kDepth + k];
      ASSERT_EQ(got[row * 256 + column], sum) << row << ", " << column;
    }
}

TEST(TensorCore, WarpgroupsMultiplyFromSharedMemoryAsTheIsaSays) {
  expect_warpgroup_product<true, true>();
  expect_warpgroup_product<true, false>();
  expect_warpgroup_product<false, false>();
}

// ---- products ----

using cuda::ProductUnit;

class ExpertProducts : public testing::TestWithParam<ProductUnit> {
 protected:
  static constexpr int64_t kColumns = 8, kInner = 72;

  Values product(const std::vector<Bfloat16>& x, const std::vector<int32_t>& first) const {
    std::vector<Bfloat16> y(x.size() / kInner * kColumns);
    EXPECT_TRUE(cuda::grouped_product<Bfloat16>(nullptr, GetParam(), y.data(), x.data(), w_.data(),
                                                first.data(), static_cast<int64_t>(x.size()) / kInner, 2,
                                                kColumns, kInner, true));
    return widened(y);
  }

  std::vector<Bfloat16> w_ = rounded<Bfloat16>(normal(2 * kColumns * kInner, 1));
};
std::string name_of_unit(const testing::TestParamInfo<ProductUnit>& unit) {
  constexpr const char* kNames[] = {"WarpInLittleMemory", "Warp", "Warpgroup"};
  return kNames[static_cast<size_t>(unit.param)];
}
INSTANTIATE_TEST_SUITE_P(By, ExpertProducts,
                         testing::Values(ProductUnit::WarpInLittleMemory, ProductUnit::Warp,
                                         ProductUnit::Warpgroup),
                         name_of_unit);

// A device never gets a kernel without code for it, nor one that asks for more shared memory than it has.
TEST(ProductUnits, DependOnTheDeviceAndOnTheCompiledArchitectures) {
  constexpr int kKib = 1024;
  using enum ProductUnit;
  EXPECT_EQ(cuda::unit_for(9, 227 * kKib, true), Warpgroup);  // H100
  EXPECT_EQ(cuda::unit_for(9, 227 * kKib, false), Warp);
  EXPECT_EQ(cuda::unit_for(10, 227 * kKib, true), Warp);                // B200
  EXPECT_EQ(cuda::unit_for(8, 163 * kKib, true), Warp);                 // A100
  EXPECT_EQ(cuda::unit_for(8, 99 * kKib, true), WarpInLittleMemory);    // L40S
  EXPECT_EQ(cuda::unit_for(12, 99 * kKib, false), WarpInLittleMemory);  // RTX 5090
  EXPECT_EQ(cuda::unit_for(9, 225 * kKib, true), Warp);
  EXPECT_EQ(cuda::unit_for(9, 226 * kKib, true), Warpgroup);
  EXPECT_EQ(cuda::unit_for(8, 143 * kKib, true), WarpInLittleMemory);
  EXPECT_EQ(cuda::unit_for(8, 144 * kKib, true), Warp);
  EXPECT_EQ(cuda::unit_for(8, 96 * kKib, true), WarpInLittleMemory);
  EXPECT_EQ(cuda::unit_for(8, 95 * kKib, true), std::nullopt);
  EXPECT_EQ(cuda::unit_for(7, 163 * kKib, true), std::nullopt);
}

TEST_P(ExpertProducts, BitsOfARowDoNotDependOnTheOthersNorOnTheOrderOfThreads) {
  const std::vector<Bfloat16> x = rounded<Bfloat16>(normal(133 * kInner, 2));
  const Values all = product(x, {0, 130, 133});
  for (const int order : {1, 5}) {
    cuda::set_thread_order(order);
    EXPECT_EQ(product(x, {0, 130, 133}), all);
  }
  cuda::set_thread_order(0);
  // Rows 127 to 129 alone, and with the second expert's.
  const auto three = x.begin() + 127 * kInner;
  const Values some = product({three, x.end()}, {0, 3, 6});
  EXPECT_EQ(some, Values(all.begin() + 127 * kColumns, all.end()));
  EXPECT_EQ(product({three, three + 3 * kInner}, {0, 3, 3}),
            Values(some.begin(), some.begin() + 3 * kColumns));
}

// All three products of whole numbers, which are exact, in both ways of writing gradients. No two threads race.
void expect_exact_products(ProductUnit unit, const std::vector<int32_t>& first, size_t columns, size_t inner,
                           bool accumulate) {
  const size_t experts = first.size() - 1, rows = static_cast<size_t>(first.back());
  const auto all = static_cast<int64_t>(rows), count = static_cast<int64_t>(experts);
  const auto n_columns = static_cast<int64_t>(columns), k_columns = static_cast<int64_t>(inner);
  const Values x = whole(all * k_columns, 1, 4), dy = whole(all * n_columns, 2, 4),
               w = whole(count * n_columns * k_columns, 3, 4);
  const auto in = rounded<Bfloat16>(x), grad = rounded<Bfloat16>(dy), weights = rounded<Bfloat16>(w);
  std::vector<Bfloat16> y(rows * columns), dx(rows * inner);
  std::vector<float> dw(w.size(), 1);
  {
    const cuda::emulation::RaceCheck check;
    ASSERT_TRUE(cuda::grouped_product<Bfloat16>(nullptr, unit, y.data(), in.data(), weights.data(),
                                                first.data(), all, count, n_columns, k_columns, true));
    ASSERT_TRUE(cuda::grouped_product<Bfloat16>(nullptr, unit, dx.data(), grad.data(), weights.data(),
                                                first.data(), all, count, k_columns, n_columns, false));
    ASSERT_TRUE(cuda::grouped_product_weight<Bfloat16>(nullptr, unit, dw.data(), grad.data(), in.data(),
                                                       first.data(), all, count, n_columns, k_columns,
                                                       accumulate));
    EXPECT_EQ(report(check.races()), "");
  }
  Values y_sums(y.size()), dx_sums(dx.size()), dw_sums(dw.size(), accumulate ? 1 : 0);
  for (size_t e = 0; e < experts; ++e)
    for (auto r = static_cast<size_t>(first[e]); r < static_cast<size_t>(first[e + 1]); ++r)
      for (size_t n = 0; n < columns; ++n)
        for (size_t k = 0; k < inner; ++k) {
          y_sums[r * columns + n] += x[r * inner + k] * w[(e * columns + n) * inner + k];
          dx_sums[r * inner + k] += dy[r * columns + n] * w[(e * columns + n) * inner + k];
          dw_sums[(e * columns + n) * inner + k] += dy[r * columns + n] * x[r * inner + k];
        }
  EXPECT_EQ(widened(y), widened(rounded<Bfloat16>(y_sums)));
  EXPECT_EQ(widened(dx), widened(rounded<Bfloat16>(dx_sums)));
  EXPECT_EQ(Values(dw.begin(), dw.end()), dw_sums);
}

// Experts without rows, with a few and with more than a tile; numbers of columns that fill no tile and more than one; a sum
// over more pieces than are in flight.
TEST_P(ExpertProducts, AreExactForWholeNumbers) {
  expect_exact_products(GetParam(), {0, 0, 130, 133}, 72, 264, true);
}

// Tiles and pieces without a remainder, and between their experts one without rows, whose gradients become zero.
TEST_P(ExpertProducts, AreExactInWholeTiles) {
  expect_exact_products(GetParam(), {0, 128, 128, 256}, 256, 256, false);
}

// Two columns of more tiles than are computed together: every one is, and once.
TEST_P(ExpertProducts, GradientsOfManyTilesAreWhole) {
  constexpr int64_t kRows = 17 * 128 + 8, kAcross = 264;
  const Values dy = whole(kRows, 1, 9), x = whole(kAcross, 2, 9);
  const auto left = rounded<Bfloat16>(dy), right = rounded<Bfloat16>(x);
  const std::vector<int32_t> first{0, 1};
  std::vector<float> dw(kRows * kAcross, 1);
  ASSERT_TRUE(cuda::grouped_product_weight<Bfloat16>(nullptr, GetParam(), dw.data(), left.data(),
                                                     right.data(), first.data(), 1, 1, kRows, kAcross, true));
  for (size_t i = 0; i < dw.size(); ++i)
    ASSERT_EQ(dw[i], 1 + dy[i / kAcross] * x[i % kAcross]) << i / kAcross << ", " << i % kAcross;
}

// Copies of boxes arrive in another order too. Some experts have no rows, and none of the others fills a piece.
TEST_P(ExpertProducts, GradientsDoNotDependOnTheOrderOfThreads) {
  constexpr int64_t kRows = 75, kDown = 72, kAcross = 40, kExperts = 4;
  const auto dy = rounded<Bfloat16>(normal(kRows * kDown, 1)),
             x = rounded<Bfloat16>(normal(kRows * kAcross, 2));
  const std::vector<int32_t> first{0, 70, 70, 75, 75};
  std::vector<std::vector<float>> results;
  for (const int order : {0, 1, 5}) {
    cuda::set_thread_order(order);
    std::vector<float> dw(kExperts * kDown * kAcross, 0.25F);
    EXPECT_TRUE(cuda::grouped_product_weight<Bfloat16>(nullptr, GetParam(), dw.data(), dy.data(), x.data(),
                                                       first.data(), kRows, kExperts, kDown, kAcross, true));
    results.push_back(std::move(dw));
  }
  cuda::set_thread_order(0);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
  constexpr size_t kOne = kDown * kAcross;
  EXPECT_EQ(results[0][kOne], 0.25F);  // this expert has no rows
  EXPECT_NE(results[0][0], 0.25F);
}

// Gradients of two experts with 70 and 5 rows, where the factors of some rows behind `finite` are NaN.
std::vector<float> gradients_beside_nan(ProductUnit unit, int64_t finite, int64_t all) {
  constexpr int64_t kDown = 72, kAcross = 40;
  auto dy = rounded<Bfloat16>(normal(all * kDown, 1)), x = rounded<Bfloat16>(normal(all * kAcross, 2));
  const Bfloat16 nan(std::numeric_limits<double>::quiet_NaN());
  std::fill(dy.begin() + finite * kDown, dy.end(), nan);
  std::fill(x.begin() + finite * kAcross, x.end(), nan);
  const std::vector<int32_t> first{0, 70, 75};
  std::vector<float> dw(2 * kDown * kAcross);
  EXPECT_TRUE(cuda::grouped_product_weight<Bfloat16>(nullptr, unit, dw.data(), dy.data(), x.data(),
                                                     first.data(), all, 2, kDown, kAcross, false));
  return dw;
}

// Tensors may have more rows than the experts: these, and the next expert's, are not read into a sum.
TEST_P(ExpertProducts, GradientsDoNotSeeRowsBehindTheExpert) {
  const std::vector<float> right = gradients_beside_nan(GetParam(), 75, 75);
  EXPECT_EQ(gradients_beside_nan(GetParam(), 75, 83), right);
  const std::vector<float> beside = gradients_beside_nan(GetParam(), 70, 75);
  const auto half = static_cast<std::ptrdiff_t>(right.size() / 2);
  EXPECT_TRUE(std::equal(right.begin(), right.begin() + half, beside.begin()));
  EXPECT_NE(beside.back(), beside.back());
}

TEST_P(ExpertProducts, WhatFitsNoTensorCoreIsLeftToOthers) {
  std::vector<Float16> numbers(64);
  std::vector<float> dw(64);
  const std::vector<int32_t> first{0, 1};
  Float16* const x = numbers.data();
  EXPECT_FALSE(cuda::grouped_product<Float16>(nullptr, GetParam(), x, x, x, first.data(), 1, 1, 8, 12, true));
  EXPECT_FALSE(
      cuda::grouped_product<Float16>(nullptr, GetParam(), x, x, x, first.data(), 1, 1, 12, 8, false));
  EXPECT_FALSE(
      cuda::grouped_product<Float16>(nullptr, GetParam(), x + 16, x, x + 4, first.data(), 1, 1, 8, 8, true));
  EXPECT_FALSE(cuda::grouped_product_weight<Float16>(nullptr, GetParam(), dw.data(), x, x + 1, first.data(),
                                                     1, 1, 8, 8, false));
}

}  // namespace
}  // namespace trifold::conformance
