// The arguments of the OpTable's rotary operations besides tensors (Su et al., arXiv 2104.09864).
#pragma once

#include <cstdint>
#include <span>

namespace trifold {

// The columns that `rotary` reads and writes, and its transformation. In row r, columns [x_column, x_column +
// columns) of x are written to columns [y_column, y_column + columns) of y: the first `heads` heads of
// `head_dim` numbers are rotated and the rest is copied. In a head, the first half of the first 2 *
// frequencies.size() numbers is paired with the second half: pair i is rotated by position * frequencies[i]
// radians, or back if `inverse` is set. With heads 0 it copies columns from one matrix to another.
struct Rotary {
  std::span<const double> frequencies;  // must outlive the work
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t columns = 0;
  int64_t x_column = 0;
  int64_t y_column = 0;
  bool inverse = false;
};

// The packed projections of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434), in which
// every head has `plain` numbers of its own in queries and keys, and `turned` = 2 * frequencies.size() more that
// are rotated; those of keys are the same for all heads. Neighbours 2i and 2i + 1 of the turned numbers are pair i,
// which is rotated by position * frequencies[i] radians; those of keys are also multiplied by `key_scale`. In the
// packed matrix, which `attention` reads, queries, keys and values of a head have `width` numbers each: their own,
// then zeros.
struct LatentHeads {
  std::span<const double> frequencies;  // must outlive the work
  int64_t heads = 0;                    // on this rank
  int64_t plain = 0;
  int64_t value = 0;  // numbers of a head's values
  int64_t width = 0;  // at least plain + turned, and at least value
  double key_scale = 1;
  int64_t turned() const { return 2 * static_cast<int64_t>(frequencies.size()); }
};

}  // namespace trifold
