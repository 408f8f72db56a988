// Statistics from which the cross entropy of rows of logits is computed if parts of a row are on several ranks or are
// computed one after the other (Shoeybi et al., arXiv 1909.08053, section 3).
#pragma once

#include <algorithm>

#include "nn/layer.h"
#include "tensor_parallel/regions.h"

namespace trifold {

// For each of n rows, or of a part of the row: the largest logit, the sum of exp(logit - max), and the label's logit,
// which is 0 in parts without the label. [n] each, in accumulate_type.
struct VocabStatistics {
  Tensor max, sum, target;

  static constexpr int64_t kCount = 3;  // statistics of a row
  // Views of `memory` [kCount * rows].
  static VocabStatistics in(Tensor memory, int64_t rows);
  static VocabStatistics take(Arena& arena, DType dtype, int64_t rows);
  VocabStatistics rows(int64_t begin, int64_t end) const;
};

// Computes the statistics of logits [n, columns], whose first column is the token `first_id`, over the columns of all
// ranks of the tensor axis. Ids from `vocab` on are padding.
void find_statistics(Run& run, const Region& region, Tensor logits, Tensor labels, int64_t first_id,
                     int64_t vocab, const VocabStatistics& result);

// Merges the statistics of two parts of the same rows into `all`. Overwrites `part`.
void merge_statistics(Run& run, const VocabStatistics& all, const VocabStatistics& part);

// The number of rows whose logits over a vocabulary of that size are computed at once. It does not depend on the mesh,
// so neither does the order of sums over rows.
int64_t rows_of_chunk(int64_t vocab);

// Calls body(begin, end) for the rows in chunks of at most `chunk`. On a Dry stream it calls body for the first chunk
// alone, which is the largest and whose memory the others reuse. If the stream has a log, the first chunk's work stands
// for all full chunks, and body is also called for the rest.
template <class Body>
void for_each_chunk(const Stream& stream, int64_t rows, int64_t chunk, Body body) {
  if (stream.mode() != Stream::Mode::Dry) {
    for (int64_t begin = 0; begin < rows; begin += chunk) body(begin, std::min(begin + chunk, rows));
    return;
  }
  WorkLog* const log = stream.log();
  const size_t first = log != nullptr ? log->list().size() : 0;
  body(0, std::min(chunk, rows));
  if (log == nullptr || rows <= chunk) return;
  log->repeat(first, rows / chunk);
  if (rows % chunk > 0) body(rows - rows % chunk, rows);
}

}  // namespace trifold
