// DataSums: sums of gradients over ranks of the data axis, in their own type or, with half the bytes of f32,
// in bf16 (--grad-reduce-in-bf16).
//
// A sum in bf16 rounds twice, however many ranks there are: each rank's contribution once, and the sum once.
// In between, an all-to-all brings the contributions of all ranks to the rank that owns the part, which adds
// them in rank order in f32 or better; adding 16-bit numbers around a ring would round p - 1 times. The sum
// is rounded even if no other rank needs it, so that a rank that keeps only its slice has the same bits as
// one that receives everything, in every ZeRO stage. An element's bits depend only on its contributions.
//
// Sums within sharding groups are rounded once more, as contributions to the sum over groups. Sums over other
// axes, and of the two uses of a tied weight, are made earlier, and not here.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace trifold {

class DataSums {
 public:
  // The bf16 elements of work space that a sum of `elements` over `ranks` needs: `elements`, padded so that
  // all ranks have equal parts. Also the number of elements that is sent for such a tensor.
  static int64_t work_elements(int64_t elements, int ranks);

  // Sums in the type of the tensors.
  explicit DataSums(const OpTable& ops) : ops_(ops) {}
  // Sums in bf16. `work`, of bf16, must outlive this and may be used by one stream at a time; tensors are
  // f32.
  DataSums(const OpTable& ops, Tensor work) : ops_(ops), work_(work) {}

  // As those of Communicator, but with bf16 `in` is overwritten and must have at least as many elements as
  // there are ranks. `out` may be part rank() of it.
  void reduce_scatter(Communicator& ranks, Tensor out, Tensor in, Stream& stream);
  void all_reduce(Communicator& ranks, Tensor inout, Stream& stream);
  // Gathers sums, whose values already fit bf16 exactly.
  void all_gather(Communicator& ranks, Tensor out, Tensor in, Stream& stream);

 private:
  bool plain(const Communicator& ranks) const { return work_.data == nullptr || ranks.size() == 1; }
  Tensor sum_of_part(Communicator& ranks, Tensor in, Stream& stream);

  const OpTable& ops_;
  Tensor work_;
  std::vector<int64_t> ones_;  // one row for each rank
};

}  // namespace trifold
