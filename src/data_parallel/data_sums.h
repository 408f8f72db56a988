// DataSums: sums of gradients over data-parallel ranks, in the tensors' type or in bf16, which halves the bytes sent
// (--grad-reduce-in-bf16).
//
// A sum in bf16 rounds twice for any number of ranks: each rank's contribution, and the sum. An all-to-all sends the
// contributions to the rank that owns the part, which adds them in rank order in f32 or better; adding 16-bit values
// around a ring would round p - 1 times. The sum is rounded even if no other rank needs it, so that a rank that keeps
// only its slice has the same bits as a rank that receives whole sums, in every ZeRO stage. An element's bits depend
// only on its contributions.
//
// Sums within sharding groups are rounded once more, as contributions to the sum over groups. Sums over other axes, and
// of the two uses of a tied weight, are computed earlier by GradientBuffer.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace trifold {

class DataSums {
 public:
  // The workspace, in bf16 elements, for a sum of `elements` over `ranks`: `elements`, padded so that all ranks have
  // equal parts. It is also the number of elements sent.
  static int64_t work_elements(int64_t elements, int ranks);

  // Sums in the type of the tensors.
  explicit DataSums(const OpTable& ops) : ops_(ops) {}
  // Sums of f32 tensors in bf16. The workspace `work`, in bf16, must outlive this object and may be used by one stream
  // at a time.
  DataSums(const OpTable& ops, Tensor work) : ops_(ops), work_(work) {}

  // As in Communicator, but sums in bf16 overwrite `in`, which must have at least as many elements as there are ranks.
  // `out` may be part rank() of `in`.
  void reduce_scatter(Communicator& ranks, Tensor out, Tensor in, Stream& stream);
  void all_reduce(Communicator& ranks, Tensor inout, Stream& stream);
  // Gathers sums, whose values are exact in bf16.
  void all_gather(Communicator& ranks, Tensor out, Tensor in, Stream& stream);

 private:
  bool plain(const Communicator& ranks) const { return work_.data == nullptr || ranks.size() == 1; }
  Tensor sum_of_part(Communicator& ranks, Tensor in, Stream& stream);

  const OpTable& ops_;
  Tensor work_;
  std::vector<int64_t> ones_;  // one row for each rank
};

}  // namespace trifold
