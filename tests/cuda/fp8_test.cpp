// The five products of the table of --fp8 against f64 products of the same operands, rounded to 8 bits by the formats'
// definition (ops/kernels/fp8.h).
//
// Tensor cores may keep few digits of a sum of 8-bit products: those of Hopper 14 bits (DeepSeek-V3, arXiv
// 2412.19437, section 3.3.2). So the first test has operands whose products are exact. Their largest number is 14 (in
// E5M2 7), which makes the scale a power of two; the magnitudes of the others lie from 8 (from 4), where the format has
// whole numbers alone and bf16 many between them; and so few are summed that no sum reaches 2^13.
#include "support/fp8.h"
#include "cuda/products.h"

namespace trifold::test {
namespace {

using cpu::Fp8;

class CudaFp8 : public CudaProducts {
 protected:
  static constexpr int64_t kRows = 64, kOuts = 48, kIns = 32;

  void SetUp() override { use_table({.fp8 = true}); }

  // Numbers of bf16 whose f32 and f64 products no order of a sum changes: see above.
  static Values whole_when_rounded(int64_t count, Fp8 format, const char* name) {
    const PhiloxKey key = philox_key(6, name);
    const double least = format == Fp8::E4M3 ? 8 : 4;
    const double most = 1.75 * least;
    const double unit = least / 128;  // of bf16
    Values values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t word = philox_word(key, i);
      const double magnitude = least + unit * static_cast<double>((word >> 1) % 97);
      values[i] = (word & 1) != 0 ? magnitude : -magnitude;
    }
    values[values.size() / 2] = most;
    return values;
  }

  static Values rounded(const Values& values, Fp8 format) {
    std::vector<float> numbers(values.begin(), values.end());
    round_to_fp8(numbers, format);
    return {numbers.begin(), numbers.end()};
  }

  // op(a) op(b) + c in f64.
  Values product(const Shape& shape, const Tensor& a, bool ta, const Tensor& b, bool tb, const Values& c) {
    const Tensor sums = on_host(DType::F64, shape, c);
    cpu_ops().gemm(*host_, sums, a, ta, b, tb, 1, 1);
    return read(sums, cpu_ops(), *host_);
  }
  Values on_device_again(const Tensor& tensor) { return read(tensor, *ops_, *stream_); }

  static Values in_bf16(Values values) {
    for (double& x : values) x = static_cast<double>(Bfloat16(x));
    return values;
  }

  // Added to what is there, the product may be rounded before; some algorithms of an H100 do.
  void expect_sum(const Tensor& sum, const Values& product, const Values& before) {
    const Values got = on_device_again(sum);
    Values once = product, twice = in_bf16(product);
    for (size_t i = 0; i < before.size(); ++i) {
      once[i] += before[i];
      twice[i] += before[i];
    }
    if (got != in_bf16(twice)) {
      EXPECT_EQ(got, in_bf16(once));
    }
  }

  const Values x_ = whole_when_rounded(kRows * kIns, Fp8::E4M3, "x");
  const Values w_ = whole_when_rounded(kOuts * kIns, Fp8::E4M3, "w");
  const Values dy_ = whole_when_rounded(kRows * kOuts, Fp8::E5M2, "dy");
};

// The numbers are what they are said to be.
TEST_F(CudaFp8, FactorsAreRoundedToWholeNumbers) {
  for (const auto& [values, format] : {std::pair(x_, Fp8::E4M3), std::pair(dy_, Fp8::E5M2)}) {
    const Values codes = rounded(values, format);
    EXPECT_NE(codes, values);
    for (const double code : codes) ASSERT_EQ(code, std::round(code));
  }
}

TEST_F(CudaFp8, ProductsFollowTheProcessor) {
  const Shape x_shape{kRows, kIns};
  const Shape w_shape{kOuts, kIns};
  const Shape y_shape{kRows, kOuts};
  const Tensor x = on_device(DType::BF16, x_shape, x_);
  const Tensor w = on_device(DType::BF16, w_shape, w_);
  const Tensor dy = on_device(DType::BF16, y_shape, dy_);
  const Tensor narrow_x = on_host(DType::F64, x_shape, rounded(x_, Fp8::E4M3));
  const Tensor narrow_w = on_host(DType::F64, w_shape, rounded(w_, Fp8::E4M3));
  const Tensor narrow_dy = on_host(DType::F64, y_shape, rounded(dy_, Fp8::E5M2));

  const Values bias = numbers(kOuts, "bias");
  Values biases;
  for (int64_t r = 0; r < kRows; ++r) biases.insert(biases.end(), bias.begin(), bias.end());
  const Tensor y = on_device(DType::BF16, y_shape);
  const Values none(static_cast<size_t>(kRows * kOuts), 0.0);
  const Values y_alone = product(y_shape, narrow_x, false, narrow_w, true, none);
  ops_->affine(*stream_, y, x, w, {});
  EXPECT_EQ(on_device_again(y), in_bf16(y_alone));
  ops_->affine(*stream_, y, x, w, on_device(DType::BF16, {kOuts}, bias));
  expect_sum(y, y_alone, biases);
  Values after_one{0};  // the same bias at an address at which no algorithm adds it
  after_one.insert(after_one.end(), bias.begin(), bias.end());
  ops_->affine(*stream_, y, x, w, on_device(DType::BF16, {kOuts + 1}, after_one).flat(1, kOuts + 1));
  expect_sum(y, y_alone, biases);

  const Tensor dx = on_device(DType::BF16, x_shape);
  const Values before = numbers(kRows * kIns, "dx");
  const Values nothing(before.size(), 0.0);
  ops_->affine_backward_input(*stream_, dx, dy, w, 0);
  const Values dx_alone = product(x_shape, narrow_dy, false, narrow_w, false, nothing);
  EXPECT_EQ(on_device_again(dx), in_bf16(dx_alone));
  const Tensor added = on_device(DType::BF16, x_shape, before);
  ops_->affine_backward_input(*stream_, added, dy, w, 1);
  expect_sum(added, dx_alone, before);

  const Values of_dw = numbers(kOuts * kIns, "dw");
  const Tensor dw = on_device(DType::F32, w_shape, of_dw);
  const Tensor db = on_device(DType::F32, {kOuts}, Values(kOuts, 0.5));
  ops_->affine_backward_weight(*stream_, dw, db, dy, x, true);
  EXPECT_EQ(on_device_again(dw), product(w_shape, narrow_dy, true, narrow_x, false, of_dw));
  Values sums(kOuts, 0.5);  // of numbers that were not rounded
  for (size_t i = 0; i < dy_.size(); ++i) sums[i % kOuts] += dy_[i];
  EXPECT_EQ(on_device_again(db), sums);
}

// With GELU around them: its own rounding is that of bf16, after the same product.
TEST_F(CudaFp8, ActivationsFollowTheirProducts) {
  const Shape y_shape{kRows, kOuts};
  const Tensor x = on_device(DType::BF16, {kRows, kIns}, x_);
  const Tensor w = on_device(DType::BF16, {kOuts, kIns}, w_);
  const Tensor z = on_device(DType::BF16, y_shape);
  const Tensor y = on_device(DType::BF16, y_shape);
  const Tensor plain = on_device(DType::BF16, y_shape);
  ops_->affine(*stream_, plain, x, w, {});
  ops_->affine_gelu(*stream_, y, z, x, w, {});
  const Values of_z = on_device_again(z);
  EXPECT_EQ(of_z, on_device_again(plain));
  const Tensor wide_z = on_host(DType::F64, y_shape, of_z);
  const Tensor wide_y = on_host(DType::F64, y_shape, of_z);
  cpu_ops().gelu(*host_, wide_y, wide_z);
  EXPECT_LT(error(y, wide_y), 0x1p-8);

  // The gradient of GELU is neither 0 nor 1 only near 0.
  const Values near = numbers(kRows * kIns, "z");
  const Tensor dy = on_device(DType::BF16, y_shape, dy_);
  const Tensor dz = on_device(DType::BF16, {kRows, kIns});
  const Tensor dx = on_device(DType::BF16, {kRows, kIns});
  ops_->affine_backward_input(*stream_, dx, dy, w, 0);
  ops_->affine_backward_gelu(*stream_, dz, dy, w, on_device(DType::BF16, {kRows, kIns}, near));
  const Tensor wide_dz = on_host(DType::F64, {kRows, kIns}, on_device_again(dx));
  cpu_ops().gelu_backward(*host_, wide_dz, wide_dz, on_host(DType::F64, {kRows, kIns}, near));
  EXPECT_LT(error(dz, wide_dz), 0x1p-8);
}

// Numbers of every size. What is left after the rounding of the factors, which both sides have, is the sum's:
// 2^-13 of what stands there for each of 1024 / 32 steps at the most, and 2^-9 for bf16. Factors that were
// not rounded would be off by more than three times that.
TEST_F(CudaFp8, SumsOfAnyNumbersKeepEnoughDigits) {
  constexpr int64_t kDepth = 1024;
  const PhiloxKey key = philox_key(7, "normal");
  const auto normal = [&](int64_t count, uint64_t first) {
    Values values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(Bfloat16(philox_normal(key, first + i)));
    return values;
  };
  const Values x = normal(kRows * kDepth, 0);
  const Values w = normal(kOuts * kDepth, 1 << 20);
  const Tensor y = on_device(DType::BF16, {kRows, kOuts});
  ops_->affine(*stream_, y, on_device(DType::BF16, {kRows, kDepth}, x),
               on_device(DType::BF16, {kOuts, kDepth}, w), {});
  const auto against = [&](const Values& left, const Values& right) {
    const Values sums = product({kRows, kOuts}, on_host(DType::F64, {kRows, kDepth}, left), false,
                                on_host(DType::F64, {kOuts, kDepth}, right), true,
                                Values(static_cast<size_t>(kRows * kOuts), 0.0));
    return error(y, on_host(DType::F64, {kRows, kOuts}, sums));
  };
  constexpr double kTolerance = 32 * 0x1p-13 + 0x1p-9;
  EXPECT_LT(against(rounded(x, Fp8::E4M3), rounded(w, Fp8::E4M3)), kTolerance);
  EXPECT_GT(against(x, w), 3 * kTolerance);
}

}  // namespace
}  // namespace trifold::test
