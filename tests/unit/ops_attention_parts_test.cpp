#include "ops/cuda/attention_parts.h"

#include <gtest/gtest.h>

#include "unit/ops_support.h"

namespace trifold::cuda {
namespace {

using ops_test::Host;
using ops_test::Values;

TEST(AttentionParts, AreAsLargeAsTheBoundAllows) {
  // 12 heads of 1024 x 1024 pairs in 16 bits: 25 MB a sample.
  EXPECT_EQ(attention_group({8, 1024, 12, 12, 64}), (AttentionGroup{8, 12}));
  EXPECT_EQ(attention_group({64, 1024, 12, 12, 64}), (AttentionGroup{32, 12}));  // 53 would do: two halves
  // One sample is too large: heads, evenly.
  EXPECT_EQ(attention_group({4, 8192, 12, 12, 64}), (AttentionGroup{1, 6}));  // 9 would do
  EXPECT_EQ(attention_group({1, 8192, 32, 8, 128}), (AttentionGroup{1, 2}));  // each with its four queries
  // Never less than a key head of a sample.
  EXPECT_EQ(attention_group({2, 65536, 16, 16, 64}), (AttentionGroup{1, 1}));
  EXPECT_EQ(attention_group({2, 65536, 16, 2, 64}), (AttentionGroup{1, 1}));
  // In any order, memory grows with the positions alone; groups are for the mask of dropout then.
  EXPECT_EQ(attention_group({2, 65536, 16, 16, 64, false, false}), (AttentionGroup{2, 16}));
  EXPECT_EQ(attention_group({2, 65536, 16, 16, 64, false, false, true}), (AttentionGroup{1, 1}));
}

TEST(AttentionParts, StayWithinTheBoundOrAreOneKeyHead) {
  for (int64_t seq = 256; seq <= 131072; seq *= 2)
    for (const int64_t batch : {1, 3, 16})
      for (const int64_t kv_heads : {1, 5, 12}) {
        const AttentionSize whole{batch, seq, 3 * kv_heads, kv_heads, 64};
        const AttentionSize group = attention_group_size(whole);
        EXPECT_TRUE(cudnn_backward_workspace(group) <= kAttentionGroupBytes + kWorkspaceAlignment ||
                    (group.batch == 1 && group.kv_heads == 1))
            << seq << " " << batch << " " << kv_heads;
        int64_t heads = 0;
        for (const AttentionPart& part : attention_parts(whole)) {
          heads += part.samples * part.heads;
          EXPECT_LE(part.samples, group.batch);
          EXPECT_LE(part.kv_heads, group.kv_heads);
        }
        EXPECT_EQ(heads, batch * whole.heads);
      }
}

// Rows of `width` numbers, `stride` apart, between a whole tensor and one of a part alone.
struct Strided {
  int64_t first, rows, width, stride;

  template <class Body>
  void each(Body body) const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t c = 0; c < width; ++c) body(static_cast<size_t>(first + row * stride + c));
  }
  Values of(const Values& whole) const {
    Values part;
    each([&](size_t at) { part.push_back(whole[at]); });
    return part;
  }
};

// A call with the tensors of one part: gathered from those of the whole, and its results put back.
class PartCall {
 public:
  PartCall(const Attention& how, const AttentionSize& size, const AttentionPart& part)
      : how_(how), part_(part), at_(size, part), seq_(size.seq), width_(size.width) {
    row_ = (size.heads + 2 * size.kv_heads) * width_;
    out_row_ = size.heads * width_;
    how_.batch = part.samples;
    how_.heads = part.heads;
    how_.kv_heads = part.kv_heads;
    how_.first_sample += part.sample;
    how_.first_head += part.head;
    if (how.lengths.data != nullptr)
      how_.lengths = {how.lengths.as<int32_t>() + part.sample, DType::I32, {part.samples}};
  }

  void run(const OpTable& ops, Stream& stream, const Values& qkv, const Values& dout, Values& out,
           Values& lse, Values& dqkv) const {
    const int64_t rows = part_.samples * seq_;
    const Host in(DType::F64, {rows, (part_.heads + 2 * part_.kv_heads) * width_}, gather(qkv));
    const Host from(DType::F64, {rows, part_.heads * width_}, out_rows().of(dout));
    const Host o(DType::F64, {rows, part_.heads * width_});
    const Host l(DType::F64, {part_.samples, part_.heads, seq_});
    const Host gradient(DType::F64, {rows, (part_.heads + 2 * part_.kv_heads) * width_});
    ops.attention(stream, o, l, in, how_);
    ops.attention_backward(stream, gradient, from, in, o, l, how_);
    size_t i = 0;
    out_rows().each([&](size_t at) { out[at] = o.values()[i++]; });
    i = 0;
    Strided{at_.rows, 1, part_.samples * part_.heads * seq_, 0}.each(
        [&](size_t at) { lse[at] = l.values()[i++]; });
    scatter(dqkv, gradient.values());
  }

 private:
  Strided out_rows() const { return {at_.out, part_.samples * seq_, part_.heads * width_, out_row_}; }

  // Queries, keys and values of each row.
  template <class Body>
  void each_packed(Body body) const {
    for (int64_t row = 0; row < part_.samples * seq_; ++row)
      for (const auto& [first, heads] :
           {std::pair(at_.query, part_.heads), {at_.key, part_.kv_heads}, {at_.value, part_.kv_heads}})
        Strided{first + row * row_, 1, heads * width_, 0}.each(body);
  }
  Values gather(const Values& whole) const {
    Values part;
    each_packed([&](size_t at) { part.push_back(whole[at]); });
    return part;
  }
  void scatter(Values& whole, const Values& part) const {
    size_t i = 0;
    each_packed([&](size_t at) { whole[at] = part[i++]; });
  }

  Attention how_;
  const AttentionPart& part_;
  PartOffsets at_;
  int64_t seq_, width_, row_ = 0, out_row_ = 0;
};

// One part after the other gives the bits of the whole: outputs, rows of softmax and gradients.
TEST(AttentionParts, GiveTheBitsOfTheWhole) {
  std::vector<int32_t> lengths{9, 4, 7};
  for (const bool ends : {false, true})
    for (const AttentionGroup group : {AttentionGroup{2, 3}, AttentionGroup{1, 2}, AttentionGroup{1, 1}}) {
      SCOPED_TRACE(fmt::format("lengths {}, {} samples, {} key heads", ends, group.samples, group.kv_heads));
      Attention how;
      how.batch = 3, how.seq = 9, how.heads = 6, how.kv_heads = 3, how.head_dim = 8;
      how.scale = 0.3;
      how.dropout = {0.2, philox_key(5, "attention"), 0};
      how.first_sample = 2, how.first_head = 6, how.global_heads = 12;
      if (ends) how.lengths = {lengths.data(), DType::I32, {3}};
      const AttentionSize size{3, 9, 6, 3, 8, ends};
      const Shape packed{27, 96};
      const Shape wide{27, 48};
      const Values qkv = ops_test::random_values(packed.elements(), 1);
      const Values dout = ops_test::random_values(wide.elements(), 2);
      ops_test::with_every_table([&](const OpTable& ops, Stream& stream) {
        const Host out(DType::F64, wide);
        const Host lse(DType::F64, {3, 6, 9});
        const Host in(DType::F64, packed, qkv);
        const Host gradient(DType::F64, packed);
        ops.attention(stream, out, lse, in, how);
        ops.attention_backward(stream, gradient, Host(DType::F64, wide, dout), in, out, lse, how);
        Values part_out(dout.size(), NAN);
        Values part_lse(162, NAN);
        Values part_gradient(qkv.size(), NAN);
        for (const AttentionPart& part : attention_parts(size, group))
          PartCall(how, size, part).run(ops, stream, qkv, dout, part_out, part_lse, part_gradient);
        EXPECT_EQ(part_out, out.values());
        EXPECT_EQ(part_lse, lse.values());
        EXPECT_EQ(part_gradient, gradient.values());
      });
    }
}

}  // namespace
}  // namespace trifold::cuda
