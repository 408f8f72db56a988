// Arguments, other than tensors, of the OpTable's rotary operations (Su et al., arXiv 2104.09864).
#pragma once

#include <cstdint>
#include <span>

namespace trifold {

// The columns that `rotary` reads and writes, and its transformation. For each row, columns [x_column, x_column +
// columns) of x are written to columns [y_column, y_column + columns) of y. They begin with `heads` heads, each
// `head_dim` wide, which are rotated; the rest is copied (all of it if heads is 0). With n = frequencies.size(),
// elements i and n + i of a head, i < n, are pair i: it is rotated by position * frequencies[i] radians, or by the
// negative angle with `inverse`, and multiplied by `scale`, so `inverse` is the adjoint. The other elements of a head are
// copied.
struct Rotary {
  std::span<const double> frequencies;  // must outlive the work
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t columns = 0;
  int64_t x_column = 0;
  int64_t y_column = 0;
  bool inverse = false;
  double scale = 1;
};

// The packed projections of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434). The query and
// the key of a head have a plain part, `plain` wide, followed by a turned part, 2 * frequencies.size() wide; the turned
// part of the key is the same for all heads. Elements 2i and 2i + 1 of a turned part are pair i, which is rotated by
// position * frequencies[i] radians. The turned part of the key is also multiplied by `key_scale`. In the packed
// matrix, which `attention` reads, the query, the key and the value of a head are each padded with zeros to `width`.
struct LatentHeads {
  std::span<const double> frequencies;  // must outlive the work
  int64_t heads = 0;                    // on this rank
  int64_t plain = 0;
  int64_t value = 0;  // width of a head's value
  int64_t width = 0;  // at least plain + turned(), and at least `value`
  double key_scale = 1;
  int64_t turned() const { return 2 * static_cast<int64_t>(frequencies.size()); }
};

}  // namespace trifold
