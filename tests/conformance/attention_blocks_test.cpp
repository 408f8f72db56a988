// Attention of context-parallel ranks in blocks (ops/cuda/block_engine.h): its kernels under the emulation, with loops in
// the place of cuDNN.
#include "ops/cuda/attention_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "conformance/op_table.h"
#include "conformance/race_report.h"
#include "cuda_emulation/emulated_ops.h"
#include "cuda_emulation/emulation.cuh"
#include "ops/contract.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/block_engine.h"
#include "ops/kernels/number.h"

namespace trifold::conformance {
namespace {

using cuda::BlockBackward;
using cuda::BlockForward;
using cuda::BlockShape;

// What a block is by definition, with sums in f64. T is the type of tensors, in which results are rounded.
template <class T>
class Loops {
 public:
  explicit Loops(const BlockShape& shape) : shape_(shape) {}

  void forward(const BlockForward& t) const {
    each_query([&](int64_t b, int64_t h, int64_t i) {
      double total = 0;
      std::vector<double> sum(static_cast<size_t>(shape_.width));
      for (int64_t j = 0; j < seen(i); ++j) {
        const double weight = std::exp(score(t, b, h, i, j));
        total += weight;
        for (int64_t c = 0; c < shape_.width; ++c)
          sum[static_cast<size_t>(c)] += weight * number(t.value, key(b, h, j) + c);
      }
      t.lse[row(b, h, i)] = static_cast<float>(std::log(total));
      for (int64_t c = 0; c < shape_.width; ++c)
        cpu::put(static_cast<T*>(t.out)[dense(b, h, i) + c],
                 static_cast<float>(sum[static_cast<size_t>(c)] / total));
    });
  }

  void backward(const BlockBackward& t) const {
    const int64_t key_columns = 2 * shape_.kv_heads * shape_.width;
    std::vector<double> dquery(static_cast<size_t>(cuda::outputs_of(shape_)));
    std::vector<double> dkeys(static_cast<size_t>(cuda::gradients_of(shape_)));
    each_query([&](int64_t b, int64_t h, int64_t i) {
      double delta = 0;
      for (int64_t c = 0; c < shape_.width; ++c)
        delta += number(t.dout, result(b, h, i) + c) * number(t.out, result(b, h, i) + c);
      for (int64_t j = 0; j < seen(i); ++j) {
        const double p = std::exp(score(t, b, h, i, j) - static_cast<double>(t.lse[row(b, h, i)]));
        double dp = 0;
        for (int64_t c = 0; c < shape_.width; ++c)
          dp += number(t.dout, result(b, h, i) + c) * number(t.value, key(b, h, j) + c);
        const double ds = p * (dp - delta) * shape_.scale;
        const int64_t to = (b * shape_.keys + j) * key_columns + h / shared() * shape_.width;
        for (int64_t c = 0; c < shape_.width; ++c) {
          dquery[static_cast<size_t>(dense(b, h, i) + c)] += ds * number(t.key, key(b, h, j) + c);
          dkeys[static_cast<size_t>(to + c)] += ds * number(t.query, query(b, h, i) + c);
          dkeys[static_cast<size_t>(to + shape_.kv_heads * shape_.width + c)] +=
              p * number(t.dout, result(b, h, i) + c);
        }
      }
    });
    store(t.dquery, dquery);
    store(t.dkey, dkeys);  // dvalue follows in each row
  }

 private:
  static double number(const void* memory, int64_t at) {
    return static_cast<double>(cpu::value(static_cast<const T*>(memory)[at]));
  }
  static void store(void* to, const std::vector<double>& from) {
    for (size_t at = 0; at < from.size(); ++at)
      cpu::put(static_cast<T*>(to)[at], static_cast<float>(from[at]));
  }
  template <class Body>
  void each_query(Body body) const {
    for (int64_t b = 0; b < shape_.batch; ++b)
      for (int64_t h = 0; h < shape_.heads; ++h)
        for (int64_t i = 0; i < shape_.queries; ++i) body(b, h, i);
  }
  template <class Tensors>
  double score(const Tensors& t, int64_t b, int64_t h, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < shape_.width; ++c)
      sum += number(t.query, query(b, h, i) + c) * number(t.key, key(b, h, j) + c);
    return sum * shape_.scale;
  }
  int64_t shared() const { return shape_.heads / shape_.kv_heads; }
  int64_t seen(int64_t i) const { return shape_.causal ? i + 1 : shape_.keys; }
  int64_t query(int64_t b, int64_t h, int64_t i) const {
    return (b * shape_.query_rows + i) * (shape_.all_heads + 2 * shape_.all_kv_heads) * shape_.width +
           h * shape_.width;
  }
  int64_t key(int64_t b, int64_t h, int64_t j) const {
    return (b * shape_.key_rows + j) * 2 * shape_.kv_heads * shape_.width + h / shared() * shape_.width;
  }
  int64_t result(int64_t b, int64_t h, int64_t i) const {
    return ((b * shape_.query_rows + i) * shape_.all_heads + h) * shape_.width;
  }
  int64_t dense(int64_t b, int64_t h, int64_t i) const {
    return ((b * shape_.queries + i) * shape_.heads + h) * shape_.width;
  }
  int64_t row(int64_t b, int64_t h, int64_t i) const { return (b * shape_.heads + h) * shape_.queries + i; }

  const BlockShape& shape_;
};

class LoopEngine final : public cuda::BlockEngine {
 public:
  size_t scratch_bytes(const BlockShape& /*shape*/, bool /*backward*/) override { return 0; }
  void forward(const BlockShape& shape, const BlockForward& block, void* /*scratch*/) override {
    in_type(shape, [&](const auto& loops) { loops.forward(block); });
  }
  void backward(const BlockShape& shape, const BlockBackward& block, void* /*scratch*/) override {
    in_type(shape, [&](const auto& loops) { loops.backward(block); });
  }

 private:
  template <class Body>
  static void in_type(const BlockShape& shape, Body body) {
    if (shape.dtype == DType::F32) return body(Loops<float>(shape));
    if (shape.dtype == DType::BF16) return body(Loops<Bfloat16>(shape));
    body(Loops<Float16>(shape));
  }
};

// Not in f64, whose sums blocks do not keep.
bool is_block_type(const Tensor& qkv) { return qkv.dtype != DType::F64; }

void forward(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& attention) {
  ASSERT_TRUE(cuda::is_in_blocks(attention));
  if (!is_block_type(qkv)) return cpu_ops().attention(stream, out, lse, qkv, attention);
  LoopEngine engine;
  std::vector<std::byte> scratch(cuda::scratch_of_blocks(engine, attention, qkv.dtype, false));
  cuda::attention_in_blocks(nullptr, engine, scratch.data(), out, lse, qkv, attention);
}

void backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
              const Attention& attention) {
  ASSERT_TRUE(cuda::is_in_blocks(attention));
  if (!is_block_type(qkv)) return cpu_ops().attention_backward(stream, dqkv, dout, qkv, out, lse, attention);
  LoopEngine engine;
  std::vector<std::byte> scratch(cuda::scratch_of_blocks(engine, attention, qkv.dtype, true));
  cuda::attention_in_blocks_backward(nullptr, engine, scratch.data(), dqkv, dout, qkv, out, lse, attention);
}

OpTable table_in_blocks() {
  OpTable ops = cuda::emulated_ops();
  ops.attention = forward;
  ops.attention_backward = backward;
  return ops;
}

class AttentionInBlocks : public testing::Test {
 protected:
  ThreadPool pool_{1};
  Stream stream_{Stream::Mode::Inline, pool_};
  OpTable ops_ = table_in_blocks();
};

TEST_F(AttentionInBlocks, AgreesWithTheProcessor) {
  for (const OpCase& test : block_op_cases()) check_case(test, ops_, stream_);
}

TEST_F(AttentionInBlocks, HasNoRaces) {
  if (!cuda::emulation::RaceCheck::is_available())
    GTEST_SKIP() << "kernels of builds with a sanitizer do not report accesses";
  const cuda::emulation::RaceCheck check;
  OpRun run(ops_, stream_, DType::BF16, DType::BF16);
  for (const OpCase& test : block_op_cases()) test.body(run);
  EXPECT_EQ(report(check.races()), "");
}

// A rank's queries lie before and behind those of the other rank, so it has a full block and two on the diagonal.
TEST(AttentionBlocks, LeaveOutWhatTheMaskHides) {
  Attention attention;
  attention.seq = 1024;
  attention.rows = SequenceRows::zig_zag(1024, 0, 2);
  const RowRun early{0, 256, 0}, late{768, 256, 256};
  using cuda::AttentionBlock;
  EXPECT_EQ(cuda::attention_blocks(attention),
            (std::vector<AttentionBlock>{{early, {0, 256, 0}, true, true},
                                         {late, {768, 256, 768}, true, true},
                                         {late, {0, 768, 0}, false, false}}));
  attention.key_rows = attention.rows;
  EXPECT_EQ(cuda::attention_blocks(attention),
            (std::vector<AttentionBlock>{
                {early, early, true, true}, {late, early, false, true}, {late, late, true, false}}));
  attention.key_rows = SequenceRows::zig_zag(1024, 1, 2);
  attention.further = true;
  const RowRun second{256, 256, 0}, third{512, 256, 256};
  EXPECT_EQ(cuda::attention_blocks(attention),
            (std::vector<AttentionBlock>{{late, second, false, false}, {late, third, false, false}}));
  attention.causal = false;
  EXPECT_EQ(cuda::attention_blocks(attention).size(), 4U);
}

}  // namespace
}  // namespace trifold::conformance
