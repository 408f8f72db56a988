// Products and attention of the CUDA table against the processor's in f64, on a GPU. Without one the tests
// skip with the reason; run with the make-believe module in TRIFOLD_MODULE_PATH they check themselves.
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

// What a beta of 0 finds in the result must not matter.
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
};

TEST_F(CudaProducts, AttentionForwardAndBackward) {
  // Whole tiles of keys, half of one, and less; heads that only some cards have
  // (ops/cuda/attention_choice.h).
  for (const Heads& h : {Heads{4, 4, true}, Heads{4, 2, true}, Heads{4, 4, false}, Heads{4, 2, false},
                         Heads{4, 4, true, 192}, Heads{4, 4, false, 192}, Heads{4, 1, true, 72},
                         Heads{4, 2, true, 256, 192}, Heads{4, 4, true, 200, 256}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}, {} of keys, {} positions, causal {}", h.heads, h.width,
                             h.kv_heads, h.seq, h.causal));
    Attention how;
    how.batch = 2;
    how.seq = h.seq;
    how.heads = how.global_heads = h.heads;
    how.kv_heads = h.kv_heads;
    how.head_dim = h.width;
    how.causal = h.causal;
    how.scale = 1 / std::sqrt(static_cast<double>(h.width));
    const int64_t rows = how.batch * how.seq;
    const Shape packed{rows, (h.heads + 2 * h.kv_heads) * how.head_dim};
    const Shape out{rows, h.heads * how.head_dim};
    const Shape lse{how.batch, h.heads, how.seq};
    const Values of_qkv = numbers(packed.elements(), "qkv");
    const Values of_dout = numbers(out.elements(), "dout");
    const auto run = [&](const OpTable& ops, Stream& stream, auto make, DType dtype) {
      const Tensor qkv = make(dtype, packed, of_qkv);
      std::vector<Tensor> made{
          make(dtype, out, Values(static_cast<size_t>(out.elements()), 0.0)),
          make(accumulate_type(dtype), lse, Values(static_cast<size_t>(lse.elements()), 0.0)),
          make(dtype, packed, Values(static_cast<size_t>(packed.elements()), 0.0))};
      ops.attention(stream, made[0], made[1], qkv, how);
      ops.attention_backward(stream, made[2], make(dtype, out, of_dout), qkv, made[0], made[1], how);
      return made;
    };
    const auto device = run(
        *ops_, *stream_, [&](auto... arg) { return on_device(arg...); }, DType::BF16);
    const auto host = run(
        cpu_ops(), *host_, [&](auto... arg) { return on_host(arg...); }, DType::F64);
    EXPECT_LT(error(device[0], host[0]), 1e-2);
    EXPECT_LT(error(device[1], host[1]), 1e-3);
    EXPECT_LT(error(device[2], host[2]), 2e-2);
    const auto again = run(
        *ops_, *stream_, [&](auto... arg) { return on_device(arg...); }, DType::BF16);
    EXPECT_EQ(read(again[2], *ops_, *stream_), read(device[2], *ops_, *stream_)) << "not the same bits";
  }
}

}  // namespace
}  // namespace trifold::test
