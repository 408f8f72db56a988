// DataSums: sums of gradients over ranks of the data axis, in the type they are in or, at half the bytes of
// f32, in bf16 (--grad-reduce-in-bf16).
//
// A sum in bf16 rounds twice, however many ranks there are: each rank's contribution once, and the sum once.
// Between them it is made in f32 or better, in rank order, by the rank whose part it is, which an all-to-all
// has given the contributions of all: adding up 16-bit numbers around a ring would round p - 1 times. The sum
// is rounded even where no other rank needs it, so that a rank that keeps only its slice has the bits of one
// that receives everything, in every ZeRO stage. An element's bits depend only on the contributions to it.
//
// Ranks that hold sums of their groups round these once more as contributions. Sums over other axes, and of
// the two uses of a tied weight, are made earlier, and not here.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace trifold {

class DataSums {
 public:
  // Elements of bf16 that a sum of so many elements over so many ranks needs as work space: `elements`,
  // filled up so that the ranks have equal parts. What they send of each tensor is counted in these, too.
  static int64_t work_elements(int64_t elements, int ranks);

  // In the type of the tensors.
  explicit DataSums(const OpTable& ops) : ops_(ops) {}
  // In bf16. `work`, of bf16, must outlive this and is for one stream at a time; tensors are f32.
  DataSums(const OpTable& ops, Tensor work) : ops_(ops), work_(work) {}

  // As those of Communicator, but that in bf16 `in` is overwritten, and must have as many elements as there
  // are ranks, at least. `out` may be part rank() of it.
  void reduce_scatter(Communicator& ranks, Tensor out, Tensor in, Stream& stream);
  void all_reduce(Communicator& ranks, Tensor inout, Stream& stream);
  // Of sums: in bf16 already as far as their bits are concerned.
  void all_gather(Communicator& ranks, Tensor out, Tensor in, Stream& stream);

 private:
  bool plain(const Communicator& ranks) const { return work_.data == nullptr || ranks.size() == 1; }
  Tensor sum_of_part(Communicator& ranks, Tensor in, Stream& stream);

  const OpTable& ops_;
  Tensor work_;
  std::vector<int64_t> ones_;  // rows for each rank
};

}  // namespace trifold
