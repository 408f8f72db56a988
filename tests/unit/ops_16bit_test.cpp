// Every operation in bf16 and f16 against itself in f32. The inputs are numbers that all three types hold, so
// the only differences are the rounding of what is stored (half a unit in the last place) and, where sums
// have another order or code is shaped by the type, the rounding of f32.
#include <bit>
#include <limits>

#include "ops/gemm.h"
#include "ops/launch_support.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

constexpr DType kTypes[] = {DType::BF16, DType::F16};

// Half a unit in the last place, relative to the number; and absolute, below f16's normal numbers.
double rounding_of(DType dtype) { return dtype == DType::BF16 ? 0x1p-8 : 0x1p-11; }
double least_rounding_of(DType dtype) { return dtype == DType::F16 ? 0x1p-25 : 0; }

// Normal numbers with seven mantissa bits: bf16, and well inside the range of f16.
Values small_values(int64_t count, uint64_t seed, double scale = 1) {
  Values values = random_values(count, seed);
  for (double& x : values) x = static_cast<double>(Bfloat16(x * scale));
  return values;
}

// An output, and whether it is stored in the type of the activations or in their accumulate_type.
struct Output {
  Values values;
  bool wide;
};
using Operation16 = std::function<std::vector<Output>(const OpTable&, Stream&, DType)>;

Output stored(const Host& host) { return {host.values(), false}; }
Output wide(const Host& host) { return {host.values(), true}; }

// The f32 tolerance is relative to the largest number of the output.
void check_like_f32(const Operation16& operation, double f32_tolerance = 2e-6) {
  for (const OpTable* ops : all_cpu_ops())
    for (DType dtype : kTypes) {
      SCOPED_TRACE(fmt::format("table {}, {}", ops->name, name_of(dtype)));
      Machine one(1);
      const std::vector<Output> expected = operation(*ops, one.stream, DType::F32);
      const std::vector<Output> got = operation(*ops, one.stream, dtype);
      for (int workers : {2, 3}) {
        Machine several(workers);
        const std::vector<Output> again = operation(*ops, several.stream, dtype);
        for (size_t o = 0; o < got.size(); ++o)
          EXPECT_EQ(again[o].values, got[o].values) << workers << " workers changed output " << o;
      }
      for (size_t o = 0; o < got.size(); ++o) {
        ASSERT_EQ(got[o].values.size(), expected[o].values.size());
        double largest = 1;
        for (double x : expected[o].values) largest = std::max(largest, std::abs(x));
        const double rounding = got[o].wide ? 0 : rounding_of(dtype);
        const double least = got[o].wide ? 0 : least_rounding_of(dtype);
        for (size_t i = 0; i < got[o].values.size(); ++i) {
          const double x = expected[o].values[i];
          const double near = f32_tolerance * largest;
          ASSERT_NEAR(got[o].values[i], x, (rounding * (std::abs(x) + near) + least) + near)
              << "output " << o << ", element " << i;
        }
      }
    }
}

TEST(Ops16, ConversionRoundsToNearestEvenAndKeepsNaN) {
  // All 16-bit values, their middles, and the f32 next to those.
  Values x;
  for (DType dtype : kTypes)
    for (uint32_t word = 0; word < 0x7c00; ++word) {
      const auto value = [&](uint32_t bits) {
        if (dtype == DType::F16)
          return static_cast<double>(std::bit_cast<Float16>(static_cast<uint16_t>(bits)));
        return static_cast<double>(std::bit_cast<Bfloat16>(static_cast<uint16_t>(bits)));
      };
      const double low = value(word);
      const auto middle = static_cast<float>(low + (value(word + 1) - low) / 2);
      for (float v :
           {static_cast<float>(low), middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e38F)})
        if (std::isfinite(v)) x.insert(x.end(), {v, -v});
    }
  for (double v :
       {65504.0, 65519.99609375, 65520.0, 1e30, 3.4e38, 3.3895e38, 1e-45, 2.98e-8, 0.0, -0.0, 1.0 / 0.0})
    x.push_back(static_cast<double>(static_cast<float>(v)));
  const auto n = static_cast<int64_t>(x.size());
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : kTypes) {
      const Host from(DType::F32, {n}, x);
      const Host to(dtype, {n});
      const Host back(DType::F32, {n});
      ops.convert(stream, to, from);
      ops.convert(stream, back, to);
      const Values expected = Host(dtype, {n}, x).values();  // rounded by core/float16.cpp
      ASSERT_EQ(to.values(), expected) << name_of(dtype);
      ASSERT_EQ(back.values(), expected) << name_of(dtype);
      const Host odd(DType::F32, {4}, {NAN, -NAN, INFINITY, -INFINITY});
      const Host narrow(dtype, {4});
      ops.convert(stream, narrow, odd);
      const Values kept = narrow.values();
      EXPECT_TRUE(std::isnan(kept[0]) && std::isnan(kept[1]));
      EXPECT_EQ(kept[2], INFINITY);
      EXPECT_EQ(kept[3], -INFINITY);
      // A NaN whose mantissa has only low bits must not become an infinity.
      const Host faint(DType::F32, {1});
      Tensor(faint).as<float>()[0] = std::bit_cast<float>(0x7f800001U);
      ops.convert(stream, Tensor(narrow).flat(0, 1), faint);
      EXPECT_TRUE(std::isnan(narrow.values()[0]));
    }
    const Host f64(DType::F64, {1}, {1.0 / 3});
    const Host f32(DType::F32, {1});
    ops.convert(stream, f32, f64);
    EXPECT_EQ(f32.values()[0], static_cast<double>(static_cast<float>(1.0 / 3)));
    EXPECT_THROW(ops.convert(stream, Host(DType::F16, {1}), f64), Error);
  });
}

TEST(Ops16, Elementwise) {
  for (int64_t n : {1, 7, 64, 40007}) {
    const Values a = small_values(n, 1);
    const Values b = small_values(n, 2, 3);
    check_like_f32([&](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
      const Host x(dtype, {n}, a);
      const Host y(dtype, {n}, b);
      const Host filled(dtype, {n}), scaled(dtype, {n}, a), added(dtype, {n}), sum(dtype, {n}, a),
          most(dtype, {n}, a), gelu(dtype, {n}), slope(dtype, {n}, a), dropped(dtype, {n}), kept(dtype, {n});
      const Dropout drop{0.25, philox_key(1, "16"), 5};
      ops.fill(stream, filled, 1.0 / 3);
      ops.scale(stream, scaled, 1.0 / 3);
      ops.add(stream, added, x, y);
      ops.reduce(stream, sum, y, Reduce::Sum);
      ops.reduce(stream, most, y, Reduce::Max);
      ops.gelu(stream, gelu, y);
      ops.gelu_backward(stream, slope, slope, y);
      ops.dropout(stream, dropped, x, drop);
      ops.dropout_add(stream, kept, y, x, drop);
      return {stored(filled), stored(scaled), stored(added),   stored(sum), stored(most),
              stored(gelu),   stored(slope),  stored(dropped), stored(kept)};
    });
  }
}

TEST(Ops16, MaxKeepsNaNs) {
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : kTypes) {
      const Host y(dtype, {4}, {NAN, 1, NAN, 1});
      ops.reduce(stream, y, Host(dtype, {4}, {1, NAN, NAN, 2}), Reduce::Max);
      const Values got = y.values();
      EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1]) && std::isnan(got[2]));
      EXPECT_EQ(got[3], 2);
    }
  });
}

TEST(Ops16, LayerNorm) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{5, 13}, {300, 128}, {70, 771}}) {
    const Values x = small_values(rows * columns, 1), dy = small_values(rows * columns, 2),
                 gain = small_values(columns, 3), bias = small_values(columns, 4);
    check_like_f32(
        [&, r = rows, c = columns](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
          const DType sums = accumulate_type(dtype);
          const Host in(dtype, {r, c}, x), grad(dtype, {r, c}, dy), g(dtype, {c}, gain);
          const Host y(dtype, {r, c}), dx(dtype, {r, c});
          const Host mean(sums, {r}), rstd(sums, {r}), dgain(sums, {c}, gain), dbias(sums, {c}, bias),
              db(sums, {c});
          ops.layer_norm(stream, y, mean, rstd, in, g, Host(dtype, {c}, bias), 1e-5, 0);
          ops.layer_norm_backward(stream, dx, grad, in, mean, rstd, g, 0);
          ops.layer_norm_backward_weight(stream, dgain, dbias, grad, in, mean, rstd, true);
          ops.column_sum(stream, db, grad, true);
          return {stored(y), wide(mean), wide(rstd), stored(dx), wide(dgain), wide(dbias), wide(db)};
        },
        5e-6);
  }
}

TEST(Ops16, SwigluRmsNormAndRotary) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{5, 14}, {300, 128}, {70, 772}}) {
    const Values x = small_values(rows * columns, 1), dy = small_values(rows * columns, 2),
                 gain = small_values(columns, 3);
    Values positions;
    for (int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<double>(r));
    const std::vector<double> frequencies{1.0, 0.3, 0.01};
    const Rotary turn{frequencies, 7, 2, columns};
    check_like_f32(
        [&, r = rows, c = columns](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
          const DType sums = accumulate_type(dtype);
          const Host in(dtype, {r, c}, x), grad(dtype, {r, c}, dy), g(dtype, {c}, gain);
          const Host y(dtype, {r, c}), dx(dtype, {r, c}), turned(dtype, {r, c});
          const Host rstd(sums, {r}), dgain(sums, {c}, gain);
          const Host product(dtype, {r, c / 2}), slope(dtype, {r, c});
          ops.rms_norm(stream, y, rstd, in, g, 1e-5, 0);
          ops.rms_norm_backward(stream, dx, grad, in, rstd, g, 0);
          ops.rms_norm_backward_weight(stream, dgain, grad, in, rstd, true);
          ops.rotary(stream, turned, in, Host(DType::I32, {r}, positions), turn);
          ops.gated(stream, product, in, {});
          ops.gated_backward(stream, slope, Tensor(grad).flat(0, r * c / 2).reshape({r, c / 2}), in, {});
          return {stored(y),      wide(rstd),      stored(dx),   wide(dgain),
                  stored(turned), stored(product), stored(slope)};
        },
        5e-6);
  }
}

TEST(Ops16, Embedding) {
  const int64_t rows = 2100, held = 30, first_id = 50;
  for (int64_t columns : {1, 65, 128}) {
    const Values table = small_values(held * columns, 1), dy = small_values(rows * columns, 2);
    Values ids(static_cast<size_t>(rows));
    for (size_t r = 0; r < ids.size(); ++r) ids[r] = 45 + philox_word(philox_key(1, "ids"), r) % 41;
    check_like_f32([&](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
      const Host in(dtype, {held, columns}, table), words(DType::I32, {rows}, ids);
      const Host out(dtype, {rows, columns}), sum(dtype, {rows, columns}, dy);
      const Host grad(accumulate_type(dtype), {held, columns}, table);
      ops.embedding(stream, out, in, words, first_id, false);
      ops.embedding(stream, sum, in, words, first_id, true);
      ops.embedding_backward(stream, grad, Host(dtype, {rows, columns}, dy), words, Host(DType::I32, {rows}),
                             first_id);
      return {stored(out), stored(sum), wide(grad)};
    });
  }
}

TEST(Ops16, CrossEntropy) {
  const int64_t rows = 37, columns = 2050, vocab = 2043, first_id = 11;
  const Values logits = small_values(rows * columns, 1, 4);
  Values labels, weight;
  for (int64_t r = 0; r < rows; ++r) {
    labels.push_back(static_cast<double>(philox_word(philox_key(2, "l"), static_cast<uint64_t>(r)) % 2043));
    weight.push_back(r % 3 == 2 ? 0.0 : 1.0);
  }
  check_like_f32([&](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
    const DType sums = accumulate_type(dtype);
    const Host in(dtype, {rows, columns}, logits), ids(DType::I32, {rows}, labels);
    const Host max(sums, {rows}), sum(sums, {rows}), target(sums, {rows});
    const Host grad(dtype, {rows, columns}), square(DType::F64, {1});
    ops.softmax_stats(stream, max, sum, target, in, ids, first_id, vocab);
    ops.sum_squares(stream, square, in);
    ops.cross_entropy_backward(stream, grad, in, max, sum, ids, Host(DType::F32, {rows}, weight), 1, first_id,
                               vocab);
    const Host in_place(dtype, {rows, columns}, logits);
    ops.cross_entropy_backward(stream, in_place, in_place, max, sum, ids, Host(DType::F32, {rows}, weight), 1,
                               first_id, vocab);
    EXPECT_EQ(in_place.values(), grad.values());
    return {wide(max), wide(sum), wide(target), stored(grad), wide(square)};
  });
}

struct AttentionCase {
  int64_t seq, heads, kv_heads, width;
  bool causal;
  double dropout;
};

TEST(Ops16, Attention) {
  for (const AttentionCase& c : {AttentionCase{5, 2, 2, 3, true, 0},
                                 {70, 2, 1, 16, true, 0},
                                 {130, 4, 2, 33, false, 0.2},
                                 {600, 1, 1, 64, true, 0.1}}) {
    Attention how;
    how.batch = 2;
    how.seq = c.seq;
    how.heads = how.global_heads = c.heads;
    how.kv_heads = c.kv_heads;
    how.head_dim = c.width;
    how.causal = c.causal;
    how.scale = 0.125;
    how.dropout = {c.dropout, philox_key(1, "attention"), 0};
    const int64_t rows = 2 * c.seq, packed = (c.heads + 2 * c.kv_heads) * c.width;
    const Values qkv = small_values(rows * packed, 1), dout = small_values(rows * c.heads * c.width, 2);
    // Backward gets the same rounded output and statistics in every type.
    Machine machine(1);
    const Host exact_out(DType::F32, {rows, c.heads * c.width}), exact_lse(DType::F32, {2, c.heads, c.seq});
    cpu_ops().attention(machine.stream, exact_out, exact_lse, Host(DType::F32, {rows, packed}, qkv), how);
    Values rounded = exact_out.values();
    for (double& x : rounded) x = static_cast<double>(Bfloat16(x));
    for (double& x : rounded) x = std::abs(x) < 0x1p-14 ? 0 : x;  // f16 holds it too
    check_like_f32(
        [&](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
          const Host in(dtype, {rows, packed}, qkv);
          const Host out(dtype, {rows, c.heads * c.width}), lse(accumulate_type(dtype), {2, c.heads, c.seq});
          const Host grad(dtype, {rows, packed}, Values(qkv.size(), NAN));
          ops.attention(stream, out, lse, in, how);
          ops.attention_backward(stream, grad, Host(dtype, {rows, c.heads * c.width}, dout), in,
                                 Host(dtype, {rows, c.heads * c.width}, rounded), exact_lse, how);
          return {stored(out), wide(lse), stored(grad)};
        },
        4e-6);
  }
}

TEST(Ops16, Gemm) {
  struct Product {
    int64_t m, n, k;
  };
  for (Product p : {Product{1, 1, 1}, {5, 7, 3}, {97, 130, 65}, {192, 384, 128}, {33, 90, 2100}}) {
    const Values a = small_values(p.m * p.k, 1), b = small_values(p.k * p.n, 2),
                 c = small_values(p.m * p.n, 3);
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (double beta : {0.0, 1.0, -0.5})
          check_like_f32([&](const OpTable& ops, Stream& stream, DType dtype) -> std::vector<Output> {
            const Values before = beta == 0 ? Values(c.size(), NAN) : c;
            const Host left(dtype, ta ? Shape{p.k, p.m} : Shape{p.m, p.k}, a);
            const Host right(dtype, tb ? Shape{p.n, p.k} : Shape{p.k, p.n}, b);
            const Host narrow(dtype, {p.m, p.n}, before);
            const Host sums(accumulate_type(dtype), {p.m, p.n}, before);
            ops.gemm(stream, narrow, left, ta, right, tb, beta == 0 ? 1 : 0.25, beta);
            ops.gemm(stream, sums, left, ta, right, tb, beta == 0 ? 1 : 0.25, beta);
            return {stored(narrow), wide(sums)};
          });
  }
}

// The way of processors without 16-bit products; whatever this one has, both ways must agree.
TEST(Ops16, GemmThroughWidenedFactors) {
  const int64_t m = 33, n = 47, k = 2100;
  const Values a = small_values(m * k, 1), b = small_values(k * n, 2), c = small_values(m * n, 3);
  Machine machine(1);
  const Host reference(DType::F32, {m, n}, c);
  cpu_ops().gemm(machine.stream, reference, Host(DType::F32, {m, k}, a), false, Host(DType::F32, {k, n}, b),
                 false, 0.5, 0.25);
  const Values expected = reference.values();
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const auto flip = [](const Values& x, int64_t rows, int64_t columns) {
        Values y(x.size());
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j)
            y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * columns + j)];
        return y;
      };
      const Values left = ta ? flip(a, m, k) : a;
      const Values right = tb ? flip(b, k, n) : b;
      for (DType dtype : kTypes)
        dispatch_float(dtype, [&](auto zero) {
          using T = decltype(zero);
          if constexpr (!std::is_same_v<T, Accumulate<T>>) {
            const auto& kernels = cpu::storage_kernels<T>(cpu::kKernelsGeneric);
            const Host x(dtype, {m * k}, left), y(dtype, {k * n}, right), sums(DType::F32, {m, n}, c),
                narrow(dtype, {m, n}, c);
            const cpu::Matrix<T> l{Tensor(x).as<T>(), ta ? m : k, ta}, r{Tensor(y).as<T>(), tb ? k : n, tb};
            cpu::gemm_block_widened(kernels, Tensor(sums).as<float>(), n, l, r, m, n, k, 0.5, 0.25);
            cpu::gemm_block_widened(kernels, Tensor(narrow).as<T>(), n, l, r, m, n, k, 0.5, 0.25);
            EXPECT_LE(distance(sums.values(), expected), 2e-6);
            EXPECT_LE(distance(narrow.values(), expected), 2e-6 + rounding_of(dtype));
          }
        });
    }
}

TEST(Ops16, MixedTypesAreRefused) {
  Machine machine(1);
  const OpTable& ops = cpu_ops();
  const Host half(DType::BF16, {8, 8});
  EXPECT_THROW(ops.gemm(machine.stream, half, half, false, Host(DType::F16, {8, 8}), false, 1, 0), Error);
  EXPECT_THROW(
      ops.gemm(machine.stream, half, Host(DType::F32, {8, 8}), false, Host(DType::F32, {8, 8}), false, 1, 0),
      Error);
  EXPECT_THROW(ops.column_sum(machine.stream, Host(DType::BF16, {8}), half, true), Error) << "sums are f32";
  EXPECT_THROW(ops.cross_entropy(machine.stream, half, half, half, half), Error);
}

}  // namespace
}  // namespace trifold::ops_test
