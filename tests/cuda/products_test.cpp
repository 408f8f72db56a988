// Products and attention of the CUDA table against the processor's in f64, on a GPU. Without one the tests
// skip with the reason; run with the fake module in TRIFOLD_MODULE_PATH they check themselves.
#include "cuda/products.h"

namespace trifold::test {
namespace {

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-13;
    case DType::F32:
      return 1e-6;
    case DType::F16:
      return 2e-3;
    default:
      return 1e-2;
  }
}

TEST_F(CudaProducts, GemmOfEveryTypeAndTranspose) {
  constexpr int64_t kM = 40;
  constexpr int64_t kN = 56;
  constexpr int64_t kK = 72;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (const DType result : {dtype, accumulate_type(dtype)})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          SCOPED_TRACE(fmt::format("{} into {}, {} {}", name_of(dtype), name_of(result), ta, tb));
          const Shape a = ta ? Shape{kK, kM} : Shape{kM, kK};
          const Shape b = tb ? Shape{kN, kK} : Shape{kK, kN};
          const Values of_a = numbers(kM * kK, "a");
          const Values of_b = numbers(kK * kN, "b");
          const Values of_c = numbers(kM * kN, "c");
          const Tensor c = on_device(result, {kM, kN}, of_c);
          const Tensor expected = on_host(DType::F64, {kM, kN}, of_c);
          ops_->gemm(*stream_, c, on_device(dtype, a, of_a), ta, on_device(dtype, b, of_b), tb, 0.5, 1.0);
          cpu_ops().gemm(*host_, expected, on_host(DType::F64, a, of_a), ta, on_host(DType::F64, b, of_b), tb,
                         0.5, 1.0);
          EXPECT_LT(error(c, expected), tolerance(result));
        }
}

// Times one: what is left of a factor with more bits than TF32 has is in its first 10 bits of mantissa.
TEST_F(CudaProducts, OnlyTf32RoundsItsFactors) {
  constexpr int64_t kSize = 64;
  Values factor(kSize * kSize), one(kSize * kSize, 0.0);
  for (size_t i = 0; i < factor.size(); ++i) factor[i] = 1 + static_cast<double>(2 * i + 1) / (1 << 14);
  for (size_t i = 0; i < kSize; ++i) one[i * kSize + i] = 1;
  for (const bool tf32 : {false, true}) {
    SCOPED_TRACE(tf32);
    use_table({.tf32 = tf32});
    const Tensor y = on_device(DType::F32, {kSize, kSize}), z = on_device(DType::F32, {kSize, kSize});
    const Tensor x = on_device(DType::F32, {kSize, kSize}, factor);
    const Tensor w = on_device(DType::F32, {kSize, kSize}, one);
    ops_->gemm(*stream_, y, x, false, w, false, 1, 0);
    ops_->linear(*stream_, z, x, w, on_device(DType::F32, {kSize}, Values(kSize, 0.0)), true);
    for (const Tensor& result : {y, z}) {
      const Values found = read(result, *ops_, *stream_);
      for (size_t i = 0; i < found.size(); ++i) {
        if (tf32)
          EXPECT_NE(found[i], factor[i]);
        else
          EXPECT_EQ(found[i], factor[i]);
        EXPECT_NEAR(found[i], factor[i], factor[i] / 1024);
      }
    }
  }
}

// With a beta of 0 the previous content of the result must not matter.
TEST_F(CudaProducts, GemmOverwrites) {
  const Tensor c = on_device(DType::F32, {16, 16}, Values(256, NAN));
  const Values ones(256, 1.0);
  ops_->gemm(*stream_, c, on_device(DType::F32, {16, 16}, ones), false, on_device(DType::F32, {16, 16}, ones),
             false, 1.0, 0.0);
  EXPECT_EQ(read(c, *ops_, *stream_), Values(256, 16.0));
}

struct Heads {
  int64_t heads, kv_heads;
  bool causal;
  int64_t seq = 128;
  int64_t width = 64;
  std::vector<int32_t> lengths = {};  // none: two samples, all of whose keys exist
  bool low = false;                   // scores of about -128
};

class CudaAttention : public CudaProducts {
 protected:
  struct Made {
    Tensor out, lse, dqkv;
  };

  static Attention attention_of(const Heads& h) {
    Attention how;
    how.batch = h.lengths.empty() ? 2 : static_cast<int64_t>(h.lengths.size());
    how.seq = h.seq;
    how.heads = how.global_heads = h.heads;
    how.kv_heads = h.kv_heads;
    how.head_dim = h.width;
    how.causal = h.causal;
    how.scale = h.low ? 128.0 / static_cast<double>(h.width) : 1 / std::sqrt(static_cast<double>(h.width));
    return how;
  }
  // For low scores, queries are ones and keys about -1.
  static Values packed_numbers(const Heads& h, const Shape& shape) {
    Values values = numbers(shape.elements(), "qkv");
    const auto row = static_cast<size_t>((h.heads + 2 * h.kv_heads) * h.width);
    const auto keys = static_cast<size_t>(h.heads * h.width);
    const auto values_from = static_cast<size_t>((h.heads + h.kv_heads) * h.width);
    for (size_t i = 0; h.low && i < values.size(); ++i) {
      if (i % row < keys)
        values[i] = 1;
      else if (i % row < values_from)
        values[i] -= 1;
    }
    return values;
  }
  // Forward and backward, into memory that holds what must not be seen.
  template <class Make>
  Made run(const OpTable& ops, Stream& stream, Make make, DType dtype, const Heads& h) {
    Attention how = attention_of(h);
    const int64_t rows = how.batch * how.seq;
    const Shape packed{rows, (h.heads + 2 * h.kv_heads) * how.head_dim};
    const Shape out{rows, h.heads * how.head_dim};
    const Shape lse{how.batch, h.heads, how.seq};
    const auto unset = [](const Shape& shape) { return Values(static_cast<size_t>(shape.elements()), NAN); };
    if (!h.lengths.empty()) how.lengths = make(h.lengths);
    const Tensor qkv = make(dtype, packed, packed_numbers(h, packed));
    const Made made{make(dtype, out, unset(out)), make(accumulate_type(dtype), lse, unset(lse)),
                    make(dtype, packed, unset(packed))};
    ops.attention(stream, made.out, made.lse, qkv, how);
    ops.attention_backward(stream, made.dqkv, make(dtype, out, numbers(out.elements(), "dout")), qkv,
                           made.out, made.lse, how);
    return made;
  }
  void expect_right(const Heads& h) {
    SCOPED_TRACE(fmt::format("{} heads of {}, {} of keys, {} positions, causal {}, lengths {}, low {}",
                             h.heads, h.width, h.kv_heads, h.seq, h.causal, fmt::join(h.lengths, " "),
                             h.low));
    const auto on_both = [&](auto... arg) { return on_device(arg...); };
    const Made device = run(*ops_, *stream_, on_both, DType::BF16, h);
    const Made host = run(
        cpu_ops(), *host_, [&](auto... arg) { return on_host(arg...); }, DType::F64, h);
    EXPECT_LT(error(device.out, host.out), 1e-2);
    EXPECT_LT(error(device.lse, host.lse), 1e-3);
    EXPECT_LT(error(device.dqkv, host.dqkv), 2e-2);
    const Made again = run(*ops_, *stream_, on_both, DType::BF16, h);
    EXPECT_EQ(read(again.dqkv, *ops_, *stream_), read(device.dqkv, *ops_, *stream_)) << "not the same bits";
  }
};

TEST_F(CudaAttention, ForwardAndBackward) {
  // Whole tiles of keys, half of one, and less; heads that only some cards have
  // (ops/cuda/attention_choice.h).
  for (const Heads& h : {Heads{4, 4, true}, Heads{4, 2, true}, Heads{4, 4, false}, Heads{4, 2, false},
                         Heads{4, 4, true, 192}, Heads{4, 4, false, 192}, Heads{4, 1, true, 72},
                         Heads{4, 2, true, 256, 192}, Heads{4, 4, true, 200, 256}})
    expect_right(h);
}

// Keys beyond a length are padding; their gradients and those of their values are zero.
TEST_F(CudaAttention, SamplesEndAtTheirLengths) {
  for (const Heads& h :
       {Heads{4, 4, false, 128, 64, {128, 1, 64, 65}}, Heads{2, 2, false, 512, 64, {512, 320, 77}},
        Heads{4, 2, false, 72, 32, {72, 9}}, Heads{4, 4, true, 128, 64, {50, 128}},
        Heads{4, 1, true, 200, 128, {200, 150}}, Heads{2, 2, false, 192, 64, {192, 64}}})
    expect_right(h);
}

// Where a key that does not exist would weigh e^128 and more, if it were taken for one of score 0.
TEST_F(CudaAttention, KeysThatDoNotExistWeighNothingAmongLowScores) {
  for (const Heads& h :
       {Heads{2, 2, false, 128, 64, {128, 64, 1}, true}, Heads{2, 2, false, 256, 64, {192, 256, 100}, true},
        Heads{2, 2, false, 192, 64, {}, true}, Heads{2, 2, false, 200, 64, {}, true}})
    expect_right(h);
}

}  // namespace
}  // namespace trifold::test
