// Sums over ranks without rounding: every rank has a part of each sum, and all get the same values, whose bits do not
// depend on how the addends were distributed (core/exact_sum.h).
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/exact_sum.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace trifold {

class SharedSums {
 public:
  // The values of `sums`, each added over the ranks of `ranks`; valid until the next call. Collective.
  std::span<double> over(Communicator& ranks, std::span<ExactSum> sums, Stream& stream);

 private:
  std::vector<int64_t> limbs_;
  std::vector<double> values_;
};

// The sum of the squares of tensors, in chunks of kNormChunk elements.
class ChunkedSquares {
 public:
  // `chunks`: chunks_of all tensors between two calls of add_to. `ops` must outlive the object.
  ChunkedSquares(int64_t chunks, const OpTable& ops);

  static int64_t chunks_of(int64_t elements) { return (elements + kNormChunk - 1) / kNormChunk; }

  // Enqueues the squares of `x`, which may be overwritten once the stream has reached this point.
  void take(Tensor x, Stream& stream);
  // Adds the squares of everything taken since the last call to `sum`. Waits for the result.
  void add_to(ExactSum& sum, Stream& stream);

 private:
  const OpTable& ops_;
  Buffer partials_;  // f64, one for each chunk
  Buffer limbs_;     // the exact sum of the partials, read by the host
  int64_t next_ = 0;
};

}  // namespace trifold
