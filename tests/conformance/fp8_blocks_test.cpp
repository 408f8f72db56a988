// Factors in narrow form (ops/narrow.h): the scale of a block against its definition, the kernels under the emulation
// against a second computation in f64, and operations that write their results in narrow form against the same
// operation followed by a pass that narrows them, bit by bit, on the processor and under the emulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "conformance/race_report.h"
#include "core/random.h"
#include "cuda_emulation/emulated_ops.h"
#include "cuda_emulation/emulation.cuh"
#include "cuda_emulation/race_check.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/narrow.h"
#include "ops/round_blocks.h"

namespace trifold::cuda {
namespace {

using Rows = std::vector<Bfloat16>;

struct Extent {
  int64_t rows, columns;
};

constexpr Extent kExtents[] = {{16, 16}, {48, 80}, {128, 128}, {144, 272}, {256, 400}, {16, 1600}};

// Normal numbers whose size differs from row to row and from column to column by up to 2^12.
Rows numbers_of(const Extent& extent, double size, uint64_t seed = 0) {
  const PhiloxKey key = philox_key(11, "narrow");
  Rows x(static_cast<size_t>(extent.rows * extent.columns));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / extent.columns,
               column = static_cast<int64_t>(i) % extent.columns;
    const double spread = std::ldexp(1.0, static_cast<int>((row * 7 + column / 3 * 5) % 13) - 6);
    x[i] = Bfloat16(size * spread * philox_normal(key, i + (seed << 32)));
  }
  return x;
}

// The scale by its definition: the least power of two (of those that the format allows) with which no element exceeds 448.
double scale_of(const std::vector<double>& block) {
  double largest = 0;
  for (const double x : block) largest = std::max(largest, std::abs(x));
  if (largest == 0) return 1;
  int exponent = -126;
  while (largest / std::ldexp(1.0, exponent) > 448) ++exponent;
  return std::ldexp(1.0, exponent);
}

// x rounded to E4M3 with this scale, by a search among all codes.
uint8_t code_of(double x, double scale) {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 0x7f; ++code) {
    const double error =
        std::abs(static_cast<double>(cpu::value_of_fp8<cpu::Fp8::E4M3>(static_cast<uint8_t>(code))) -
                 std::abs(x) / scale);
    if (error < least || (error == least && code % 2 == 0)) {
      least = error;
      best = code;
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

struct Narrow {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

// Blocks of block_rows x block_columns; at(block row, block column) is the place of a scale.
Narrow reference(const Rows& x, const Extent& extent, int64_t block_rows, int64_t block_columns,
                 const std::function<size_t(int64_t, int64_t)>& at, size_t scales) {
  Narrow made{std::vector<uint8_t>(x.size()), std::vector<float>(scales, -1)};
  for (int64_t r = 0; r < extent.rows; r += block_rows)
    for (int64_t c = 0; c < extent.columns; c += block_columns) {
      std::vector<double> block;
      const auto each = [&](const auto& visit) {
        for (int64_t i = r; i < std::min(r + block_rows, extent.rows); ++i)
          for (int64_t j = c; j < std::min(c + block_columns, extent.columns); ++j)
            visit(static_cast<size_t>(i * extent.columns + j));
      };
      each([&](size_t i) { block.push_back(static_cast<double>(x[i])); });
      const double scale = scale_of(block);
      each([&](size_t i) { made.codes[i] = code_of(static_cast<double>(x[i]), scale); });
      made.scales[at(r / block_rows, c / block_columns)] = static_cast<float>(scale);
    }
  return made;
}

Narrow rows_reference(const Rows& x, const Extent& extent) {
  return reference(
      x, extent, 1, kScaleBlock,
      [&](int64_t row, int64_t block) { return static_cast<size_t>(block * extent.rows + row); },
      static_cast<size_t>(extent.rows * scale_blocks(extent.columns)));
}

NarrowForms rows_form(Narrow& made, const Extent& extent) {
  return {.rows = extent.rows,
          .columns = extent.columns,
          .codes = made.codes.data(),
          .scales = made.scales.data()};
}
NarrowForms turned_form(Narrow& made, std::vector<float>& sums, const Extent& extent) {
  return {.rows = extent.rows,
          .columns = extent.columns,
          .turned_codes = made.codes.data(),
          .turned_scales = made.scales.data(),
          .sums = sums.data()};
}

Narrow narrow_on_device(const Rows& x, const Extent& extent) {
  Narrow made{std::vector<uint8_t>(x.size(), 0xee),
              std::vector<float>(static_cast<size_t>(extent.rows * scale_blocks(extent.columns)), -1)};
  write_forms(nullptr, rows_form(made, extent), x.data());
  return made;
}

template <class T>
std::vector<T> transposed(const std::vector<T>& x, const Extent& extent) {
  std::vector<T> y(x.size());
  for (int64_t r = 0; r < extent.rows; ++r)
    for (int64_t c = 0; c < extent.columns; ++c)
      y[static_cast<size_t>(c * extent.rows + r)] = x[static_cast<size_t>(r * extent.columns + c)];
  return y;
}

TEST(BlockScale, IsTheLeastPowerOfTwoThatFits) {
  std::vector<float> all = {0, 1, 448, 449, 1.75F, 1.7500001F, 1e-30F, 1e-38F, 1e-44F, 3e38F, 57344};
  for (uint64_t i = 0; i < 2000; ++i)
    all.push_back(static_cast<float>(
        std::ldexp(std::abs(philox_normal(philox_key(1, "scale"), i)), static_cast<int>(i % 240) - 120)));
  for (const float largest : all) {
    const cpu::BlockScale scale = cpu::block_scale(largest);
    EXPECT_EQ(static_cast<double>(scale.from), scale_of({static_cast<double>(largest)})) << largest;
    EXPECT_EQ(scale.to * scale.from, 1);
    EXPECT_LE(largest * scale.to, 448);
  }
  EXPECT_TRUE(std::isnan(cpu::block_scale(std::numeric_limits<float>::infinity()).to));
  EXPECT_TRUE(std::isnan(cpu::block_scale(std::numeric_limits<float>::quiet_NaN()).to));
}

TEST(NarrowForm, BytesOfARowTellItsColumns) {
  for (int64_t columns = 1; columns < 2000; ++columns)
    ASSERT_EQ(columns_of_bytes(narrow_bytes(columns)), columns);
}

TEST(NarrowForm, RowsFollowTheDefinition) {
  for (const Extent& extent : kExtents)
    for (const double size : {1.0, 1e-20, 1e30}) {
      SCOPED_TRACE(testing::Message() << extent.rows << " x " << extent.columns << " times " << size);
      const Rows x = numbers_of(extent, size);
      const Narrow expected = rows_reference(x, extent);
      const Narrow got = narrow_on_device(x, extent);
      EXPECT_EQ(got.codes, expected.codes);
      EXPECT_EQ(got.scales, expected.scales);
      Narrow host{std::vector<uint8_t>(x.size()), std::vector<float>(got.scales.size())};
      cpu::narrow_rows(host.codes.data(), host.scales.data(), x.data(), extent.rows, extent.columns, 0,
                       extent.rows);
      EXPECT_EQ(host.codes, expected.codes);
      EXPECT_EQ(host.scales, expected.scales);
    }
}

TEST(NarrowForm, WeightsFollowTheDefinition) {
  for (const Extent& extent : kExtents) {
    SCOPED_TRACE(testing::Message() << extent.rows << " x " << extent.columns);
    const Rows w = numbers_of(extent, 0.02);
    for (const bool turned : {false, true}) {
      const int64_t stride = weight_scale_stride(turned ? extent.rows : extent.columns);
      const int64_t blocks = scale_blocks(turned ? extent.columns : extent.rows);
      const auto count = static_cast<size_t>(stride * blocks);
      const auto at = [&](int64_t row, int64_t column) {
        return static_cast<size_t>(turned ? column * stride + row : row * stride + column);
      };
      const Narrow expected = reference(w, extent, kScaleBlock, kScaleBlock, at, count);
      Narrow got{std::vector<uint8_t>(w.size(), 0xee), std::vector<float>(count, -1)};
      narrow_weight(nullptr, got.codes.data(), got.scales.data(), w.data(), extent.rows, extent.columns,
                    turned);
      EXPECT_EQ(got.codes, turned ? transposed(expected.codes, extent) : expected.codes);
      EXPECT_EQ(got.scales, expected.scales);
    }
  }
}

// The gradient of a weight reads the columns of the narrow form, whether its factor is narrow already or not.
TEST(NarrowForm, TurnedColumnsFollowTheDefinition) {
  for (const Extent& extent : kExtents) {
    SCOPED_TRACE(testing::Message() << extent.rows << " x " << extent.columns);
    const Rows x = numbers_of(extent, 1);
    const Narrow rows = rows_reference(x, extent);
    Rows widened(x.size());
    cpu::widen_rows(widened.data(), rows.codes.data(), rows.scales.data(), extent.rows, extent.columns, 0,
                    extent.rows);
    const auto count = static_cast<size_t>(extent.columns * scale_blocks(extent.rows));
    const Narrow expected = reference(
        widened, extent, kScaleBlock, 1,
        [&](int64_t block, int64_t column) { return static_cast<size_t>(block * extent.columns + column); },
        count);
    Narrow from_wide{std::vector<uint8_t>(x.size(), 0xee), std::vector<float>(count, -1)};
    std::vector<float> sums(count, -1), sums_of_wide = sums;
    write_forms(nullptr, turned_form(from_wide, sums_of_wide, extent), x.data());
    EXPECT_EQ(from_wide.codes, transposed(expected.codes, extent));
    EXPECT_EQ(from_wide.scales, expected.scales);
    Narrow made = rows;
    Narrow from_narrow = from_wide;
    from_narrow.codes.assign(x.size(), 0xee);
    turn_rows(nullptr, turned_form(from_narrow, sums, extent),
              {made.codes.data(), made.scales.data(), extent.rows, extent.columns});
    EXPECT_EQ(from_narrow.codes, from_wide.codes);
    EXPECT_EQ(from_narrow.scales, from_wide.scales);
    // All forms at once have the bits of each.
    Narrow rows_too = rows, turned_too = from_wide;
    std::vector<float> sums_too = sums_of_wide;
    for (Narrow* one : {&rows_too, &turned_too}) one->codes.assign(x.size(), 0xee);
    NarrowForms all = turned_form(turned_too, sums_too, extent);
    all.codes = rows_too.codes.data();
    all.scales = rows_too.scales.data();
    write_forms(nullptr, all, x.data());
    EXPECT_EQ(rows_too.codes, rows.codes);
    EXPECT_EQ(rows_too.scales, rows.scales);
    EXPECT_EQ(turned_too.codes, from_wide.codes);
    EXPECT_EQ(turned_too.scales, from_wide.scales);
    EXPECT_EQ(sums_too, sums_of_wide);
    Narrow host{std::vector<uint8_t>(x.size()), std::vector<float>(count)};
    cpu::turn_rows(host.codes.data(), host.scales.data(), x.data(), extent.rows, extent.columns, 0,
                   extent.rows);
    EXPECT_EQ(host.codes, from_wide.codes);
    EXPECT_EQ(host.scales, from_wide.scales);
    Rows again(x.size()), turned_again(x.size());
    cpu::widen_turned(again.data(), host.codes.data(), host.scales.data(), extent.rows, extent.columns, 0,
                      extent.rows);
    for (int64_t r = 0; r < extent.rows; r += kScaleBlock)
      cpu::round_columns(turned_again.data() + r * extent.columns, widened.data() + r * extent.columns,
                         std::min(kScaleBlock, extent.rows - r), extent.columns, extent.columns);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), turned_again.begin(), [](Bfloat16 a, Bfloat16 b) {
      return static_cast<double>(a) == static_cast<double>(b);
    }));
    // The sums of a narrow matrix are of its elements, those of a wide one of the elements before they are rounded.
    const struct {
      const std::vector<float>& of_blocks;
      const Rows& numbers;
    } summed[] = {{sums, widened}, {sums_of_wide, x}};
    for (const bool accumulate : {false, true}) {
      std::vector<float> total(static_cast<size_t>(extent.columns), 0.5F);
      for (const auto& one : summed) {
        std::fill(total.begin(), total.end(), 0.5F);
        add_turned_sums(nullptr, total.data(), one.of_blocks.data(), extent.rows, extent.columns, accumulate);
        for (int64_t c = 0; c < extent.columns; ++c) {
          double sum = accumulate ? 0.5 : 0, sizes = 1;
          for (int64_t r = 0; r < extent.rows; ++r) {
            const auto number = static_cast<double>(one.numbers[static_cast<size_t>(r * extent.columns + c)]);
            sum += number;
            sizes += std::abs(number);
          }
          ASSERT_NEAR(static_cast<double>(total[static_cast<size_t>(c)]), sum, 1e-6 * sizes) << c;
        }
      }
    }
  }
}

TEST(NarrowForm, ANumberThatIsNotFiniteMakesItsBlockNaN) {
  const Extent extent{16, 256};
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(HUGE_VAL)}) {
    Rows x = numbers_of(extent, 1);
    x[3 * 256 + 140] = Bfloat16(bad);
    const Narrow got = narrow_on_device(x, extent);
    for (size_t i = 0; i < x.size(); ++i) {
      const bool in_block = i >= 3 * 256 + 128 && i < 4 * 256;
      ASSERT_EQ(std::isnan(cpu::value_of_fp8<cpu::Fp8::E4M3>(got.codes[i])), in_block) << i;
    }
  }
}

TEST(NarrowForm, KernelsHaveNoRaces) {
  if (!emulation::RaceCheck::is_available())
    GTEST_SKIP() << "kernels of builds with a sanitizer do not report accesses";
  const Extent extent{144, 272};
  const Rows x = numbers_of(extent, 1);
  Narrow made{std::vector<uint8_t>(x.size()), std::vector<float>(2048)};
  Narrow turned = made;
  std::vector<float> sums(2048);
  const NarrowMatrix narrow{made.codes.data(), made.scales.data(), extent.rows, extent.columns};
  const auto run_kernels = [&] {
    write_forms(nullptr, rows_form(made, extent), x.data());
    turn_rows(nullptr, turned_form(turned, sums, extent), narrow);
    NarrowForms all = turned_form(turned, sums, extent);
    all.codes = made.codes.data();
    all.scales = made.scales.data();
    write_forms(nullptr, all, x.data());
    // Two results, which use the tile one after the other.
    const Extent gates{144, 512};
    const Rows gate = numbers_of(gates, 1), dy = numbers_of({144, 256}, 1, 1);
    Narrow of_gates{std::vector<uint8_t>(gate.size()), std::vector<float>(gates.columns * 2)};
    gated_backward_narrow(nullptr, 0, cpu::GateRule{}, turned_form(of_gates, sums, gates), dy.data(),
                          gate.data());
    for (const bool by_columns : {false, true})
      narrow_weight(nullptr, turned.codes.data(), turned.scales.data(), x.data(), extent.rows, extent.columns,
                    by_columns);
  };
  run_kernels();  // the first run of a kernel constructs the emulation's shared memory
  const emulation::RaceCheck check;
  run_kernels();
  EXPECT_EQ(conformance::report(check.races()), "");
}

// ---- operations with narrow results ----

class NarrowResults : public testing::TestWithParam<bool> {
 protected:
  void TearDown() override { set_thread_order(0); }

  const OpTable& ops() const { return GetParam() ? emulated_ops() : narrow_cpu_ops(); }

  Tensor tensor(DType dtype, const Shape& shape) {
    buffers_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(dtype) + 1);
    return buffers_.back().tensor(dtype, shape);
  }
  Tensor numbers(const Shape& shape, uint64_t seed) {
    const Tensor x = tensor(DType::BF16, shape);
    const Rows values = numbers_of({x.row_count(), x.last_dim()}, 1, seed);
    std::copy(values.begin(), values.end(), x.as<Bfloat16>());
    return x;
  }

  // Calls `compute` with a wide result and with narrow ones, in several orders of threads: these are the narrow forms of
  // the first. With `forms`, the result has a turned form and sums too, and a turned form without rows.
  void expect_same(const Extent& extent, const std::function<void(const Forms&)>& compute,
                   bool forms = true) {
    SCOPED_TRACE(testing::Message() << extent.rows << " x " << extent.columns);
    const Tensor wide = tensor(DType::BF16, {extent.rows, extent.columns});
    compute(wide);
    const auto count = static_cast<size_t>(extent.rows * extent.columns);
    std::vector<uint8_t> codes(count);
    std::vector<float> scales(static_cast<size_t>(extent.rows * scale_blocks(extent.columns)));
    cpu::narrow_rows(codes.data(), scales.data(), wide.as<Bfloat16>(), extent.rows, extent.columns, 0,
                     extent.rows);
    EXPECT_GT(std::count_if(codes.begin(), codes.end(), [](uint8_t code) { return (code & 0x7f) != 0; }), 0);
    for (const int order : {0, 1, 5}) {
      set_thread_order(order);
      const Tensor narrow = tensor(DType::U8, narrow_shape(extent.rows, extent.columns));
      compute(narrow);
      const auto* got = narrow.as<uint8_t>();
      EXPECT_TRUE(std::equal(codes.begin(), codes.end(), got)) << "codes in order " << order;
      EXPECT_TRUE(std::equal(scales.begin(), scales.end(), reinterpret_cast<const float*>(got + count)))
          << "scales in order " << order;
      if (forms) expect_forms(extent, compute, wide, narrow, order);
    }
  }

  void expect_forms(const Extent& extent, const std::function<void(const Forms&)>& compute, Tensor wide,
                    Tensor narrow, int order) {
    const Shape turned = turned_shape(extent.rows, extent.columns),
                sums = sums_shape(extent.rows, extent.columns);
    Forms expected, got, alone = tensor(DType::U8, turned);
    for (Forms* each : {&expected, &got}) {
      each->rows = tensor(DType::U8, narrow.shape);
      each->turned = tensor(DType::U8, turned);
      each->sums = tensor(DType::F32, sums);
    }
    narrow_cpu_ops().write_forms(stream_, expected, wide);
    compute(got);
    compute(alone);
    const auto same = [&](const char* what, const Tensor& one, const Tensor& other) {
      EXPECT_EQ(std::memcmp(one.data, other.data, one.bytes()), 0) << what << " in order " << order;
    };
    same("rows", got.rows, narrow);
    same("turned form", got.turned, expected.turned);
    same("turned form alone", alone.turned, expected.turned);
    for (int64_t i = 0; i < sums.elements(); ++i) {
      const double sum = static_cast<double>(expected.sums.as<float>()[i]);
      ASSERT_NEAR(static_cast<double>(got.sums.as<float>()[i]), sum, 1e-4 * (64 + std::abs(sum))) << i;
    }
  }

  ThreadPool pool_{1};
  Stream stream_{Stream::Mode::Inline, pool_};
  std::vector<Buffer> buffers_;
};

constexpr Extent kResults[] = {{16, 16}, {32, 272}, {16, 1600}, {48, 128}, {144, 256}};
constexpr Extent kLongRows = {16, 17600};  // too long for a thread to hold all packs

TEST_P(NarrowResults, OfNorms) {
  std::vector<Extent> extents(std::begin(kResults), std::end(kResults));
  extents.push_back(kLongRows);
  for (const Extent& extent : extents) {
    const Tensor x = numbers({extent.rows, extent.columns}, 1);
    const Tensor gain = numbers({extent.columns}, 2), bias = numbers({extent.columns}, 3);
    const Tensor mean = tensor(DType::F32, {extent.rows}), rstd = tensor(DType::F32, {extent.rows});
    expect_same(
        extent,
        [&](const Forms& y) { ops().layer_norm(stream_, y.rows, mean, rstd, x, gain, bias, 1e-5, 0); },
        false);
    expect_same(
        extent, [&](const Forms& y) { ops().rms_norm(stream_, y.rows, rstd, x, gain, 1e-5, 1); }, false);
  }
}

TEST_P(NarrowResults, OfActivations) {
  for (const Extent& extent : kResults) {
    const Tensor x = numbers({extent.rows, extent.columns}, 1),
                 dy = numbers({extent.rows, extent.columns}, 2);
    for (const ActivationKind kind :
         {ActivationKind::Gelu, ActivationKind::GeluErf, ActivationKind::SquaredRelu, ActivationKind::Relu}) {
      expect_same(extent, [&](const Forms& y) { activate(ops(), stream_, y, x, kind); });
      expect_same(extent, [&](const Forms& dx) { activate_backward(ops(), stream_, dx, dy, x, kind); });
    }
  }
}

TEST_P(NarrowResults, OfGates) {
  for (const Extent& extent : kResults)
    for (const ActivationForm& form :
         {ActivationForm(ActivationKind::Swiglu), ActivationForm(ActivationKind::Geglu),
          ActivationForm(ActivationKind::GegluErf), ActivationForm::clamped_swiglu(1.7, 7, 1)}) {
      const Tensor x = numbers({extent.rows, 2 * extent.columns}, 1);
      const Tensor dy = numbers({extent.rows, extent.columns}, 2);
      expect_same(extent, [&](const Forms& y) { activate(ops(), stream_, y, x, form); });
      if (extent.columns % kScaleBlock == 0)
        expect_same({extent.rows, 2 * extent.columns},
                    [&](const Forms& dx) { activate_backward(ops(), stream_, dx, dy, x, form); });
    }
}

INSTANTIATE_TEST_SUITE_P(Tables, NarrowResults, testing::Bool(),
                         [](const auto& one) { return one.param ? "Emulated" : "Processor"; });

}  // namespace
}  // namespace trifold::cuda
