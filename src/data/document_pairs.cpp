#include "data/document_pairs.h"

#include <algorithm>
#include <numeric>

namespace trifold {

void add_document_pairs(const Batch& batch, std::span<double> pairs) {
  const int64_t length = batch.seq_length();
  const int32_t* begin = batch.document_begin.as<int32_t>();
  const int ranks = static_cast<int>(pairs.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const SequenceRows rows = SequenceRows::zig_zag(length, rank, ranks);
    for (int64_t sample = 0; sample < batch.samples(); ++sample)
      for (const RowRun& run : rows.runs())
        for (int64_t t = run.begin; t < run.end(); ++t)
          pairs[static_cast<size_t>(rank)] += static_cast<double>(t - begin[sample * length + t] + 1);
  }
}

double most_over_mean(std::span<const double> pairs) {
  const double sum = std::accumulate(pairs.begin(), pairs.end(), 0.0);
  return *std::max_element(pairs.begin(), pairs.end()) * static_cast<double>(pairs.size()) / sum;
}

}  // namespace trifold
