// Products of narrow factors on the processor (narrow_cpu_ops) against f64 products of operands that are rounded by the
// definition in ops/narrow.h, block by block; and the contract of narrow tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "ops/kernels/fp8.h"
#include "ops/narrow.h"

namespace trifold {
namespace {

using Numbers = std::vector<double>;

struct Matrix {
  int64_t rows, columns;
  Numbers at;
  double& operator()(int64_t r, int64_t c) { return at[static_cast<size_t>(r * columns + c)]; }
  double operator()(int64_t r, int64_t c) const { return at[static_cast<size_t>(r * columns + c)]; }
};

// Numbers of bf16 whose sizes differ between the blocks of 128.
Matrix normal(int64_t rows, int64_t columns, uint64_t seed) {
  Matrix x{rows, columns, Numbers(static_cast<size_t>(rows * columns))};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const double size = std::ldexp(1.0, static_cast<int>((r / 64 + c / 100 * 3) % 9) - 4);
      x(r, c) = static_cast<double>(
          Bfloat16(size * philox_normal(philox_key(seed, "x"), static_cast<uint64_t>(r * columns + c))));
    }
  return x;
}

Matrix in_blocks(Matrix x, int64_t block_rows, int64_t block_columns) {
  for (int64_t r = 0; r < x.rows; r += block_rows)
    for (int64_t c = 0; c < x.columns; c += block_columns) {
      const auto each = [&](const auto& visit) {
        for (int64_t i = r; i < std::min(r + block_rows, x.rows); ++i)
          for (int64_t j = c; j < std::min(c + block_columns, x.columns); ++j) visit(x(i, j));
      };
      double largest = 0;
      each([&](double& number) { largest = std::max(largest, std::abs(number)); });
      double scale = std::ldexp(1.0, -40);
      while (largest / scale > 448) scale *= 2;
      each([&](double& number) {
        const uint8_t code = cpu::round_fp8<cpu::Fp8::E4M3>(static_cast<float>(number / scale));
        number = static_cast<double>(cpu::value_of_fp8<cpu::Fp8::E4M3>(code)) * scale;
      });
    }
  return x;
}

Matrix product(const Matrix& a, bool ta, const Matrix& b, bool tb) {
  const int64_t m = ta ? a.columns : a.rows, n = tb ? b.rows : b.columns, k = ta ? a.rows : a.columns;
  Matrix y{m, n, Numbers(static_cast<size_t>(m * n))};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) y(i, j) += (ta ? a(l, i) : a(i, l)) * (tb ? b(j, l) : b(l, j));
  return y;
}

class NarrowProducts : public testing::Test {
 protected:
  Tensor tensor(DType dtype, const Shape& shape) {
    buffers_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(dtype));
    return buffers_.back().tensor(dtype, shape);
  }
  Tensor wide(const Matrix& x) {
    const Tensor y = tensor(DType::BF16, {x.rows, x.columns});
    for (size_t i = 0; i < x.at.size(); ++i) y.as<Bfloat16>()[i] = Bfloat16(x.at[i]);
    return y;
  }
  // The narrow form, as the gradient x of a ReLU whose inputs are all positive.
  Tensor narrow(const Matrix& x) {
    const Tensor y = tensor(DType::U8, narrow_shape(x.rows, x.columns));
    const Tensor ones = wide({x.rows, x.columns, Numbers(x.at.size(), 1.0)});
    narrow_cpu_ops().rectify_backward(stream_, y, wide(x), ones);
    return y;
  }

  void expect_close(const Tensor& got, const Matrix& expected, double tolerance) {
    double largest = 0, error = 0;
    for (size_t i = 0; i < expected.at.size(); ++i) {
      const double value = got.dtype == DType::F32 ? static_cast<double>(got.as<float>()[i])
                                                   : static_cast<double>(got.as<Bfloat16>()[i]);
      largest = std::max(largest, std::abs(expected.at[i]));
      error = std::max(error, std::abs(value - expected.at[i]));
    }
    EXPECT_LT(error, tolerance * largest);
  }

  static constexpr int64_t kRows = 144, kIns = 272, kOuts = 160;
  const Matrix x_ = normal(kRows, kIns, 1), w_ = normal(kOuts, kIns, 2), dy_ = normal(kRows, kOuts, 3);
  const OpTable& ops_ = narrow_cpu_ops();
  ThreadPool pool_{2};
  Stream stream_{Stream::Mode::Inline, pool_};
  std::vector<Buffer> buffers_;
};

constexpr double kOfBf16 = 0x1p-8;  // rounding of a result
constexpr double kOfF32 = 1e-5;     // order of a sum

TEST_F(NarrowProducts, FollowTheDefinition) {
  const Matrix rows_of_x = in_blocks(x_, 1, 128), rows_of_dy = in_blocks(dy_, 1, 128);
  const Matrix blocks_of_w = in_blocks(w_, 128, 128);
  const Tensor y = tensor(DType::BF16, {kRows, kOuts}), dx = tensor(DType::BF16, {kRows, kIns});
  const Tensor dw = tensor(DType::F32, {kOuts, kIns});
  for (const bool are_narrow : {false, true}) {
    const Tensor x = are_narrow ? narrow(x_) : wide(x_), dy = are_narrow ? narrow(dy_) : wide(dy_);
    ops_.affine(stream_, y, x, wide(w_), {});
    expect_close(y, product(rows_of_x, false, blocks_of_w, true), kOfBf16);
    ops_.affine_backward_input(stream_, dx, dy, wide(w_), 0);
    expect_close(dx, product(rows_of_dy, false, blocks_of_w, false), kOfBf16);
    const Tensor db = tensor(DType::F32, {kOuts});
    ops_.affine_backward_weight(stream_, dw, db, dy, x, false);
    expect_close(dw, product(in_blocks(rows_of_dy, 128, 1), true, in_blocks(rows_of_x, 128, 1), false),
                 kOfF32);
    const Matrix ones{1, kRows, Numbers(kRows, 1.0)};
    // Of the elements before they are rounded, if dy has them.
    expect_close(db, product(ones, false, are_narrow ? rows_of_dy : dy_, false), kOfF32);
  }
  // Without rounding, or with one scale, the results are further away: the test sees what it is about.
  const Matrix plain = product(x_, false, w_, true), rounded = product(rows_of_x, false, blocks_of_w, true);
  double difference = 0, largest = 0;
  for (size_t i = 0; i < plain.at.size(); ++i) {
    difference = std::max(difference, std::abs(plain.at[i] - rounded.at[i]));
    largest = std::max(largest, std::abs(plain.at[i]));
  }
  EXPECT_GT(difference, 2 * kOfBf16 * largest);
}

// One form or the other: the same bits, but of a bias' gradient, which sums the elements of dy that it finds.
TEST_F(NarrowProducts, DoNotDependOnTheFormOfTheirFactors) {
  enum class As { Wide, Narrow, Turned };
  const auto turned = [&](const Matrix& matrix) {
    Forms forms = tensor(DType::U8, turned_shape(matrix.rows, matrix.columns));
    forms.sums = tensor(DType::F32, sums_shape(matrix.rows, matrix.columns));
    ops_.write_forms(stream_, forms, wide(matrix));
    return forms;
  };
  const auto bits = [&](As as) {
    const bool are_narrow = as != As::Wide;
    const Tensor x = are_narrow ? narrow(x_) : wide(x_), dy = are_narrow ? narrow(dy_) : wide(dy_);
    const Tensor y = tensor(DType::BF16, {kRows, kOuts}), dx = tensor(DType::BF16, {kRows, kIns});
    const Tensor dw = tensor(DType::F32, {kOuts, kIns}), db = tensor(DType::F32, {kOuts});
    const Tensor bias = wide(normal(1, kOuts, 9));
    ops_.affine(stream_, y, x, wide(w_), bias.flat());
    ops_.affine_backward_input(stream_, dx, dy, wide(w_), 0);
    if (as == As::Turned)
      ops_.affine_backward_weight(stream_, dw, db, turned(dy_), turned(x_), false);
    else
      ops_.affine_backward_weight(stream_, dw, db, dy, x, false);
    if (as != As::Narrow) {
      const Matrix ones{1, kRows, Numbers(kRows, 1.0)};
      expect_close(db, product(ones, false, dy_, false), kOfF32);
    }
    std::string all;
    for (const Tensor& result : {y, dx, dw})
      all.append(static_cast<const char*>(result.data), result.bytes());
    return all;
  };
  EXPECT_EQ(bits(As::Wide), bits(As::Narrow));
  EXPECT_EQ(bits(As::Wide), bits(As::Turned));
}

TEST_F(NarrowProducts, ContractNamesWhatDoesNotFit) {
  const auto error_of = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Tensor wide_x = wide(x_), rstd = tensor(DType::F32, {kRows}), gain = wide(normal(1, kIns, 4)).flat();
  const Tensor other = tensor(DType::U8, narrow_shape(kRows, kIns + 16));
  const std::string of_norm = error_of([&] { ops_.rms_norm(stream_, other, rstd, wide_x, gain, 1e-5, 0); });
  EXPECT_NE(of_norm.find("rms_norm: y is narrow with 144 rows of 288 columns, but bf16 with 144 rows of 272"),
            std::string::npos)
      << of_norm;
  const Tensor y = tensor(DType::BF16, {kRows, kOuts});
  EXPECT_NE(error_of([&] { ops_.affine(stream_, y, other, wide(w_), {}); }).find("[144, 288]"),
            std::string::npos);
  const Tensor dw = tensor(DType::F32, {kOuts, kIns}), db = tensor(DType::F32, {kOuts});
  const Tensor turned_dy = tensor(DType::U8, turned_shape(kRows, kOuts));
  EXPECT_NE(error_of([&] {
              ops_.affine_backward_weight(stream_, dw, db, turned_dy, wide_x, false);
            }).find("turned without sums"),
            std::string::npos);
  const Tensor short_x = tensor(DType::U8, turned_shape(kRows - 16, kIns));
  EXPECT_NE(error_of([&] { ops_.affine_backward_weight(stream_, dw, {}, turned_dy, short_x, false); }), "");
  EXPECT_NE(error_of([&] { ops_.write_forms(stream_, wide_x, wide_x); }).find("narrow ones are needed"),
            std::string::npos);
  const Tensor turned_x = tensor(DType::U8, turned_shape(kRows, kIns));
  EXPECT_NE(
      error_of([&] { ops_.affine(stream_, y, turned_x, wide(w_), {}); }).find("x is turned, but its rows"),
      std::string::npos);
  Forms both = tensor(DType::BF16, {kRows, kIns});
  both.turned = turned_x;
  EXPECT_NE(error_of([&] { ops_.gelu(stream_, both, wide_x); }).find("y has rows in bf16 beside other forms"),
            std::string::npos);
  const Tensor gates = tensor(DType::U8, narrow_shape(kRows, 2 * kOuts));
  const Tensor halves = wide(normal(kRows, 2 * kOuts, 5));
  EXPECT_NE(
      error_of([&] { ops_.gated_backward(stream_, gates, wide(dy_), halves, {}); }).find("multiple of 128"),
      std::string::npos);
}

}  // namespace
}  // namespace trifold
