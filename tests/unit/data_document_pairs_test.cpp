#include "data/document_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trifold {
namespace {

// The pairs of one sample on `ranks` ranks.
std::vector<double> pairs_of(std::vector<int32_t> document_begin, int ranks) {
  const auto length = static_cast<int64_t>(document_begin.size());
  Batch batch = batch_without_memory(1, length);
  batch.document_begin = {document_begin.data(), DType::I32, {1, length}};
  std::vector<double> pairs(static_cast<size_t>(ranks), 0.0);
  add_document_pairs(batch, pairs);
  return pairs;
}

// Documents of 6 and 10 tokens: rank 0 has rows 0-3 (10 pairs) and 12-15 (34), rank 1 rows 4-5 (11) and 6-11 (21).
TEST(DocumentPairs, OfTwoDocumentsOnTwoRanks) {
  std::vector<int32_t> begin(16, 0);
  std::fill(begin.begin() + 6, begin.end(), 6);
  const std::vector<double> pairs = pairs_of(begin, 2);
  EXPECT_EQ(pairs, (std::vector<double>{44, 32}));
  EXPECT_NEAR(most_over_mean(pairs), 44.0 / 38, 1e-15);
}

TEST(DocumentPairs, OfOneDocumentAreEven) {
  for (const int ranks : {1, 2, 4}) {
    const std::vector<double> pairs = pairs_of(std::vector<int32_t>(16, 0), ranks);
    for (const double of_rank : pairs) EXPECT_EQ(of_rank, 16 * 17 / 2 / ranks);
    EXPECT_EQ(most_over_mean(pairs), 1);
  }
}

}  // namespace
}  // namespace trifold
