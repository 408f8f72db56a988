#include "data/later_labels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "data/read_ahead.h"

namespace trifold::test {
namespace {

// Samples of six tokens: labels 10 s + t + 1, of which that of position 2 does not count; a document begins at position 4.
class Numbers final : public DataSource {
 public:
  explicit Numbers(bool separates) : separates_(separates) {}
  int64_t seq_length() const override { return 6; }
  int64_t samples() const override { return 3; }
  bool separates_documents() const override { return separates_; }
  void read(Batch& batch, int64_t first_sample) const override {
    batch.first_sample = first_sample;
    for (int64_t i = 0; i < batch.samples() * 6; ++i) {
      const int64_t t = i % 6;
      batch.tokens.as<int32_t>()[i] = static_cast<int32_t>(10 * (first_sample + i / 6) + t);
      batch.labels.as<int32_t>()[i] = batch.tokens.as<int32_t>()[i] + 1;
      batch.positions.as<int32_t>()[i] = static_cast<int32_t>(t);
      batch.loss_weight.as<float>()[i] = t == 2 ? 0.0F : 1.0F;
      if (separates_) batch.document_begin.as<int32_t>()[i] = t < 4 ? 0 : 4;
    }
  }

 private:
  bool separates_;
};

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  return {tensor.as<T>(), tensor.as<T>() + tensor.elements()};
}

TEST(LaterLabels, AreTheLabelsOfLaterPositions) {
  const Numbers numbers(false);
  const LaterLabels source(numbers, 2);
  BatchBuffer buffer(source, 2);
  Batch& batch = buffer.batch();
  source.read(batch, 0);
  EXPECT_EQ(values_of<int32_t>(batch.later_labels[0]),
            (std::vector<int32_t>{2, 3, 4, 5, 6, 0, 12, 13, 14, 15, 16, 0}));
  EXPECT_EQ(values_of<int32_t>(batch.later_labels[1]),
            (std::vector<int32_t>{3, 4, 5, 6, 0, 0, 13, 14, 15, 16, 0, 0}));
  EXPECT_EQ(values_of<float>(batch.later_weights[0]),
            (std::vector<float>{1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(values_of<float>(batch.later_weights[1]),
            (std::vector<float>{0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(batch.later_labels[2].rank(), 0);
}

TEST(LaterLabels, OfOtherDocumentsDoNotCount) {
  const Numbers numbers(true);
  const LaterLabels source(numbers, 2);
  BatchBuffer buffer(source, 1);
  source.read(buffer.batch(), 1);
  EXPECT_EQ(values_of<float>(buffer.batch().later_weights[0]), (std::vector<float>{1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(values_of<float>(buffer.batch().later_weights[1]), (std::vector<float>{0, 1, 0, 0, 0, 0}));
}

// A rank gets labels of positions that another rank has.
TEST(LaterLabels, AreCutWithTheirPositions) {
  const Numbers numbers(false);
  const LaterLabels source(numbers, 1);
  BatchBuffer buffer(source, 1);
  Batch& batch = buffer.batch();
  source.read(batch, 0);
  cut_rows(batch, SequenceRows::consecutive(6, 0, 2));
  EXPECT_EQ(values_of<int32_t>(batch.later_labels[0]), (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(values_of<float>(batch.later_weights[0]), (std::vector<float>{1, 0, 1}));
}

TEST(LaterLabels, PaddingHasNone) {
  const Numbers numbers(false);
  const LaterLabels source(numbers, 1);
  BatchBuffer buffer(source, 2);
  Batch& batch = buffer.batch();
  source.read(batch, 0);
  read_padded(source, batch, 2, 3);
  const std::vector<int32_t> labels = values_of<int32_t>(batch.later_labels[0]);
  const std::vector<float> weights = values_of<float>(batch.later_weights[0]);
  EXPECT_EQ(labels[0], 22);
  EXPECT_EQ(weights[0], 1);
  EXPECT_TRUE(std::all_of(labels.begin() + 6, labels.end(), [](int32_t label) { return label == 0; }));
  EXPECT_TRUE(std::all_of(weights.begin() + 6, weights.end(), [](float weight) { return weight == 0; }));
}

}  // namespace
}  // namespace trifold::test
