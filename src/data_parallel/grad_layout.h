// GradLayout: the placement of a rank's gradients in memory, computed before anything is allocated. It counts
// what GradientBuffer holds.
//
// If units are reduced once a step, each has memory of its own. If they are reduced after each micro-batch
// (policy `each` of --zero-reduce), a unit is *transient* (`passes`): this rank keeps the sums of its slice,
// and the whole unit has memory only from the first gradient of a micro-batch to its reduction. Units that
// never have memory at the same time share a place, always the same one, so addresses repeat.
//
// If both uses of a tied weight are on this rank, they share memory where one micro-batch is summed before a
// reduction: the head's gradient is complete before the embedding's is added to it as one sum
// (OpTable::embedding_backward). That gives the bits of two gradients that are added at the end.
//
// Sums that travel in bf16 (DataSums) need work space, half as large as the largest unit.
#pragma once

#include <utility>
#include <vector>

#include "data_parallel/flat_layout.h"

namespace trifold {

class GradLayout {
 public:
  // Reductions once a step, of so many micro-batches.
  static GradLayout whole(const FlatLayout& layout, int micros = 2);
  // After each micro-batch. `together`: indices of units that are in memory at one time, in any order.
  static GradLayout passing(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together);

  // Adds work space for sums in bf16 over the ranks that share slices, and over so many groups of them.
  void add_work(const FlatLayout& layout, int groups);

  // One buffer holds everything; this is its size in elements.
  int64_t elements() const { return elements_; }
  // Whether the unit is in memory for a time only.
  bool passes(int unit) const { return of(unit).place >= 0; }
  // The place it shares with others, counted from 0; negative where it does not pass.
  int place(int unit) const { return of(unit).place; }
  int places() const { return places_; }
  // Where the unit begins, and, where it passes, the sums of this rank's slice.
  int64_t begin(int unit) const { return of(unit).begin; }
  int64_t slice_begin(int unit) const { return of(unit).slice_begin; }
  // Whether the gradient of this tied use of a weight lies apart from that of the other use on this rank.
  bool apart(ParamId id) const { return apart_[static_cast<size_t>(id.index)] >= 0; }
  // The work space, in elements of bf16; 0 where sums do not need any, and where it begins in the buffer.
  int64_t work_elements() const { return work_elements_; }
  int64_t work_begin() const { return work_begin_; }
  // One view a parameter into `flat`; an empty tensor for what is not held.
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
