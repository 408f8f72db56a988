#include "data/batch.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "data/read_ahead.h"
#include "support/files.h"

namespace trifold {
namespace {

constexpr int64_t kPositions = 12;

// Numbers that say where they stood.
class Numbered final : public DataSource {
 public:
  int64_t seq_length() const override { return kPositions; }
  int64_t samples() const override { return 100; }
  bool separates_documents() const override { return true; }
  void read(Batch& batch, int64_t first) const override {
    batch.first_sample = first;
    for (int64_t i = 0; i < batch.tokens.elements(); ++i) {
      const auto number = static_cast<int32_t>(first * kPositions + i);
      batch.tokens.as<int32_t>()[i] = number;
      batch.labels.as<int32_t>()[i] = number + 1;
      batch.positions.as<int32_t>()[i] = number % static_cast<int32_t>(kPositions);
      batch.loss_weight.as<float>()[i] = static_cast<float>(number);
      batch.document_begin.as<int32_t>()[i] = number / 5;
    }
    for (int64_t b = 0; b < batch.samples(); ++b)
      batch.lengths.as<int32_t>()[b] = static_cast<int32_t>(first + b);
  }
};

std::vector<int32_t> numbers(const Tensor& tensor) {
  return {tensor.as<int32_t>(), tensor.as<int32_t>() + tensor.elements()};
}

// Of two samples from `first` on: those of rank 1 of 3, {2, 3, 8, 9}.
void expect_cut(const Batch& batch, int32_t first) {
  const auto base = static_cast<int32_t>(first * kPositions);
  std::vector<int32_t> expected;
  for (const int32_t sample : {base, base + 12})
    for (const int32_t position : {2, 3, 8, 9}) expected.push_back(sample + position);
  EXPECT_EQ(batch.tokens.shape, (Shape{2, 4}));
  EXPECT_EQ(numbers(batch.tokens), expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(batch.labels.as<int32_t>()[i], expected[i] + 1);
    EXPECT_EQ(batch.positions.as<int32_t>()[i], expected[i] % 12);
    EXPECT_EQ(batch.loss_weight.as<float>()[i], static_cast<float>(expected[i]));
  }
  EXPECT_EQ(batch.document_begin.shape, (Shape{2, kPositions}));  // of all
  for (int64_t i = 0; i < 2 * kPositions; ++i)
    EXPECT_EQ(batch.document_begin.as<int32_t>()[i], (base + static_cast<int32_t>(i)) / 5);
  EXPECT_EQ(numbers(batch.lengths), (std::vector<int32_t>{first, first + 1}));
  EXPECT_EQ(batch.first_sample, first);
  EXPECT_EQ(batch.rows.length(), kPositions);
  EXPECT_EQ(batch.held_rows().rows(), 4);
}

TEST(CutRows, LeavesThePositionsOfOneRank) {
  const Numbered source;
  BatchBuffer buffer(source, 2);
  source.read(buffer.batch(), 7);
  Batch batch = buffer.batch();
  cut_rows(batch, SequenceRows::zig_zag(kPositions, 1, 3));
  expect_cut(batch, 7);
  EXPECT_EQ(buffer.batch().tokens.shape, (Shape{2, kPositions}));  // to be read into again
}

TEST(CutRows, OfAllPositionsChangesNothing) {
  const Numbered source;
  BatchBuffer buffer(source, 1);
  source.read(buffer.batch(), 0);
  cut_rows(buffer.batch(), SequenceRows(kPositions));
  std::vector<int32_t> all(kPositions);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(numbers(buffer.batch().tokens), all);
}

TEST(ReadPadded, MarksTheSamplesThatTheDataDoNotHave) {
  const Numbered source;
  BatchBuffer buffer(source, 3);
  for (const int64_t real : {1, 3, 0, 2}) {
    read_padded(source, buffer.batch(), 0, real);
    std::vector<int32_t> expected(3 * kPositions, 0);
    std::fill(expected.begin() + real * kPositions, expected.end(), 1);
    EXPECT_EQ(numbers(buffer.batch().padding), expected) << real;
  }
}

TEST(CutRows, RefusesABatchOfOtherSequences) {
  Batch batch = batch_without_memory(2, 10);
  EXPECT_THROW(cut_rows(batch, SequenceRows::zig_zag(kPositions, 0, 2)), Error);
}

TEST(ReadAhead, GivesThePositionsAskedFor) {
  const Numbered source;
  ReadOrder order{.first_sample = 1, .stride = 4, .micro_batch_size = 2, .count = 10};
  order.rows = SequenceRows::zig_zag(kPositions, 1, 3);
  ReadAhead ahead(source, order);
  for (int32_t i = 0; i < 10; ++i) expect_cut(ahead.get(), 1 + 4 * i);
}

// Samples of one token, with three bytes of arrays for each and ten for all.
class WithArrays final : public DataSource {
 public:
  int64_t seq_length() const override { return 1; }
  int64_t samples() const override { return 6; }
  int64_t array_bytes(int64_t samples) const override { return 10 + 3 * samples; }
  void read(Batch& batch, int64_t first) const override {
    batch.first_sample = first;
    std::iota(batch.arrays.as<uint8_t>(), batch.arrays.as<uint8_t>() + batch.arrays.elements(),
              static_cast<uint8_t>(first));
  }
};

TEST(BatchArrays, AreReadAlignedAndAsAWhole) {
  const WithArrays source;
  ReadAhead ahead(source, {0, 3, 3, 2});
  for (const int first : {0, 3}) {
    Batch batch = ahead.get();
    ASSERT_EQ(batch.arrays.shape, (Shape{19}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.arrays.data) % 64, 0U);
    EXPECT_EQ(batch.arrays.as<uint8_t>()[18], first + 18);
    EXPECT_EQ(batch.tokens.elements(), 3);
    cut_rows(batch, SequenceRows(1));
    EXPECT_EQ(batch.arrays.shape, (Shape{19}));
  }
}

TEST(BatchArrays, OtherSourcesHaveNone) {
  const Numbered source;
  BatchBuffer buffer(source, 2);
  EXPECT_EQ(buffer.batch().arrays.data, nullptr);
}

TEST(BatchArrays, CannotBeCutOrPadded) {
  const WithArrays source;
  BatchBuffer buffer(source, 4);
  EXPECT_NE(test::error_of([&] { first_samples(buffer.batch(), 2); }, ErrorKind::Failure)
                .find("no part of 2 of its 4"),
            std::string::npos);
  read_padded(source, buffer.batch(), 2, 6);
  EXPECT_NE(test::error_of([&] {
              read_padded(source, buffer.batch(), 4, 6);
            }).find("2 of the 4 samples from 4 on do not"),
            std::string::npos);
}

}  // namespace
}  // namespace trifold
