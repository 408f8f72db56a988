// GradLayout: the placement of a rank's gradients in memory, computed before anything is allocated. It also
// gives the size of GradientBuffer.
//
// If units are reduced once per step, each has its own memory. If they are reduced after each micro-batch
// (policy `each` of --zero-reduce), a unit is *transient* (`passes`): this rank keeps the sums of its slice,
// and the whole unit has memory only from the first gradient of a micro-batch to its reduction. Units that
// never have memory at the same time may share a place; a unit's place is always the same, so addresses
// repeat.
//
// If both uses of a tied weight are on this rank, and one micro-batch is summed before a reduction, they
// share memory: the head's gradient is complete before the embedding's is added to it as one sum
// (OpTable::embedding_backward). The bits are those of two gradients that are added at the end.
//
// Sums sent in bf16 (DataSums) need work space, half as large as the largest unit.
#pragma once

#include <utility>
#include <vector>

#include "data_parallel/flat_layout.h"

namespace trifold {

class GradLayout {
 public:
  // Reductions once per step, of `micros` micro-batches.
  static GradLayout whole(const FlatLayout& layout, int micros = 2);
  // Reductions after each micro-batch. `together`: pairs of units that are in memory at the same time, by
  // index, in any order.
  static GradLayout passing(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together);

  // Adds work space for sums in bf16 over the ranks that share slices, and over the groups of them.
  void add_work(const FlatLayout& layout);

  // The size of the one buffer that holds everything, in elements.
  int64_t elements() const { return elements_; }
  // Whether the unit is transient.
  bool passes(int unit) const { return of(unit).place >= 0; }
  // The index of the place that the unit shares with others; negative if it is not transient.
  int place(int unit) const { return of(unit).place; }
  int places() const { return places_; }
  // Where the unit begins, and, if it is transient, the sums of this rank's slice.
  int64_t begin(int unit) const { return of(unit).begin; }
  int64_t slice_begin(int unit) const { return of(unit).slice_begin; }
  // Whether the gradient of this tied use of a weight is separate from that of the other use on this rank.
  bool apart(ParamId id) const { return apart_[static_cast<size_t>(id.index)] >= 0; }
  // The size of the work space, in elements of bf16 (0 if sums need none), and where it begins in the buffer.
  int64_t work_elements() const { return work_elements_; }
  int64_t work_begin() const { return work_begin_; }
  // One view per parameter into `flat`; an empty tensor for parameters that are not held.
  std::vector<Tensor> views(const FlatLayout& layout, Tensor flat) const;

 private:
  struct Home {
    int64_t begin = 0;
    int64_t slice_begin = -1;
    int place = -1;
  };

  explicit GradLayout(const FlatLayout& layout)
      : homes_(layout.units().size()), apart_(static_cast<size_t>(layout.params().size()), -1) {}
  const Home& of(int unit) const { return homes_[static_cast<size_t>(unit)]; }
  int64_t take(int64_t elements);
  void add_places(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together);

  std::vector<Home> homes_;     // of each unit
  std::vector<int64_t> apart_;  // of each parameter: where its gradient begins; -1: in its unit
  int places_ = 0;
  int64_t elements_ = 0;
  int64_t work_elements_ = 0;
  int64_t work_begin_ = 0;
};

}  // namespace trifold
