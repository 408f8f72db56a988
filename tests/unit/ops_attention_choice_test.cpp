#include "ops/cuda/attention_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace trifold::cuda {
namespace {

Attention shape(int64_t seq, bool causal, int64_t head_dim = 64) {
  Attention how;
  how.batch = 2;
  how.seq = seq;
  how.heads = how.kv_heads = 4;
  how.head_dim = head_dim;
  how.causal = causal;
  return how;
}

TEST(AttentionChoice, CudnnTakesSixteenBitsAndWholePacks) {
  EXPECT_TRUE(is_for_cudnn(shape(1024, true), DType::BF16));
  EXPECT_TRUE(is_for_cudnn(shape(100, false), DType::F16));
  EXPECT_TRUE(is_for_cudnn(shape(1024, true, 256), DType::BF16));
  EXPECT_FALSE(is_for_cudnn(shape(1024, true), DType::F32));
  EXPECT_FALSE(is_for_cudnn(shape(1024, true), DType::F64));
  EXPECT_FALSE(is_for_cudnn(shape(1024, true, 68), DType::BF16));
  EXPECT_FALSE(is_for_cudnn(shape(1024, true, 264), DType::BF16));
  EXPECT_FALSE(is_for_cudnn(shape(1, true), DType::BF16));
}

TEST(AttentionChoice, LengthsAreMaskedFrom910AndHideNothing) {
  int32_t lengths[] = {3, 4};
  const auto with_lengths = [&](int64_t seq) {
    Attention how = shape(seq, false);
    how.lengths = {lengths, DType::I32, {2}};
    return how;
  };
  EXPECT_TRUE(is_for_cudnn(with_lengths(512), DType::BF16));
  EXPECT_TRUE(is_wrong_in_cudnn(with_lengths(512), 90999));
  EXPECT_FALSE(is_wrong_in_cudnn(with_lengths(512), 91000));
  EXPECT_FALSE(is_wrong_in_cudnn(shape(512, false), 90999));
  EXPECT_TRUE(is_wrong_in_cudnn(with_lengths(192), 91900));
  EXPECT_FALSE(is_wrong_in_cudnn(with_lengths(192), 92600));
}

TEST(AttentionChoice, DocumentsAreMaskedFrom919AndNotWithDropout) {
  std::vector<int32_t> first(2048, 0);
  Attention how = shape(1024, true);
  how.first_keys = {first.data(), DType::I32, {2, 1024}};
  EXPECT_TRUE(is_for_cudnn(how, DType::BF16));
  EXPECT_TRUE(is_wrong_in_cudnn(how, 91800));
  EXPECT_FALSE(is_wrong_in_cudnn(how, 91900));
  EXPECT_FALSE(is_missing_in_cudnn(how, 9));
  EXPECT_TRUE(is_missing_in_cudnn(how, 8) && is_missing_in_cudnn(how, 10));
  how.dropout.probability = 0.1;
  EXPECT_FALSE(is_for_cudnn(how, DType::BF16));
}

TEST(AttentionChoice, WideHeadsAreHoppersAndDropoutIsNotBlackwells) {
  Attention dropping = shape(1024, true);
  dropping.dropout.probability = 0.1;
  for (const int major : {8, 9, 10, 12}) {
    EXPECT_FALSE(is_missing_in_cudnn(shape(1024, true, 128), major)) << major;
    EXPECT_EQ(is_missing_in_cudnn(shape(1024, true, 136), major), major != 9) << major;
    EXPECT_EQ(is_missing_in_cudnn(dropping, major), major == 10) << major;
  }
}

TEST(AttentionChoice, HalfATileOfKeysWithoutAMaskIsWrongBefore926) {
  for (const int64_t seq : {64, 192, 320, 1216}) {
    EXPECT_TRUE(is_wrong_in_cudnn(shape(seq, false), 91900)) << seq;
    EXPECT_TRUE(is_wrong_in_cudnn(shape(seq, false), 92501)) << seq;
    EXPECT_FALSE(is_wrong_in_cudnn(shape(seq, false), 92600)) << seq;
    EXPECT_FALSE(is_wrong_in_cudnn(shape(seq, true), 91900)) << seq;
  }
  for (const int64_t seq : {128, 1000, 1024, 1280})
    EXPECT_FALSE(is_wrong_in_cudnn(shape(seq, false), 91900)) << seq;
}

TEST(AttentionChoice, TilesThatAreNotFullAreWrongUpTo915) {
  for (const bool causal : {true, false}) {
    EXPECT_TRUE(is_wrong_in_cudnn(shape(1000, causal), 91500));
    EXPECT_FALSE(is_wrong_in_cudnn(shape(1000, causal), 91501));
    EXPECT_FALSE(is_wrong_in_cudnn(shape(1024, causal), 91002));
  }
}

// Context ranks' runs in blocks of whole tiles, without what hides some keys of a run.
TEST(AttentionChoice, RunsOfWholeTilesAreBlocks) {
  Attention how = shape(1024, true);
  how.rows = SequenceRows::zig_zag(1024, 1, 4);
  EXPECT_TRUE(is_for_cudnn(how, DType::BF16));
  EXPECT_FALSE(is_for_cudnn(how, DType::F32));
  how.key_rows = SequenceRows::zig_zag(1024, 3, 4);
  EXPECT_TRUE(is_for_cudnn(how, DType::BF16));
  EXPECT_FALSE(is_wrong_in_cudnn(how, 91000));
  Attention drops = how;
  drops.dropout.probability = 0.1;
  EXPECT_FALSE(is_for_cudnn(drops, DType::BF16));
  Attention slides = how;
  slides.left = 256;
  EXPECT_FALSE(is_for_cudnn(slides, DType::BF16));
  how.rows = how.key_rows = SequenceRows::zig_zag(1024, 1, 8);  // runs of 64
  EXPECT_FALSE(is_for_cudnn(how, DType::BF16));
}

}  // namespace
}  // namespace trifold::cuda
