// GradLayout: the layout of a rank's gradients in the memory of GradientBuffer, computed before anything is allocated.
//
// If units are reduced once per step, each has its own memory. If they are reduced after each micro-batch (policy
// `each` of --zero-reduce), a unit is *transient* (`passes`): this rank keeps the sums of its slice, and the whole unit
// has memory only from the first gradient of a micro-batch to its reduction. Transient units that are never in memory
// at the same time may share a buffer (unit_buffers.h).
//
// If both uses of a tied weight are on this rank and each reduction sums one micro-batch, the two gradients share
// memory: the head's gradient is complete before the embedding's is added to it as one sum
// (OpTable::embedding_backward). The bits are the same as if two gradients were added at the end. Where that does not hold
// (ParamSpec::added_in_parts) they have separate memory.
//
// Frozen units have no gradients.
//
// Sums sent in bf16 (DataSums) need workspace, half as large as the largest unit.
#pragma once

#include <utility>
#include <vector>

#include "data_parallel/flat_layout.h"

namespace trifold {

class GradLayout {
 public:
  // The layout for one reduction per step, which sums `micros` micro-batches.
  static GradLayout whole(const FlatLayout& layout, int micros = 2);
  // The layout for a reduction after each micro-batch. `together`: pairs of units, by index, that are in memory at the
  // same time, in any order.
  static GradLayout passing(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together);

  // Adds workspace for sums in bf16 within sharding groups and between them.
  void add_work(const FlatLayout& layout);

  // The size of the allocation that holds everything, in elements.
  int64_t elements() const { return elements_; }
  // Whether the unit is transient.
  bool passes(int unit) const { return of(unit).buffer >= 0; }
  // The index of the unit's shared buffer; negative if it is not transient.
  int buffer(int unit) const { return of(unit).buffer; }
  int buffers() const { return buffers_; }
  // The offsets of the unit and, if it is transient, of the sums of this rank's slice.
  int64_t begin(int unit) const { return of(unit).begin; }
  int64_t slice_begin(int unit) const { return of(unit).slice_begin; }
  // Whether this tied use of a weight has a gradient separate from the gradient of the other use on this rank.
  bool apart(ParamId id) const { return apart_[static_cast<size_t>(id.index)] >= 0; }
  // The size of the workspace, in elements of bf16 (0 if sums need none), and its offset in the allocation.
  int64_t work_elements() const { return work_elements_; }
  int64_t work_begin() const { return work_begin_; }
  // One view per parameter into `flat`; an empty tensor for parameters that are not held or frozen.
  std::vector<Tensor> views(const FlatLayout& layout, Tensor flat) const;

 private:
  struct UnitMemory {
    int64_t begin = 0;
    int64_t slice_begin = -1;
    int buffer = -1;
  };

  explicit GradLayout(const FlatLayout& layout)
      : units_(layout.units().size()), apart_(static_cast<size_t>(layout.params().size()), -1) {}
  const UnitMemory& of(int unit) const { return units_[static_cast<size_t>(unit)]; }
  int64_t take(int64_t elements);
  void add_buffers(const FlatLayout& layout, const std::vector<std::pair<int, int>>& together);

  std::vector<UnitMemory> units_;  // by unit
  std::vector<int64_t> apart_;     // by parameter: the offset of its separate gradient; -1: in its unit
  int buffers_ = 0;
  int64_t elements_ = 0;
  int64_t work_elements_ = 0;
  int64_t work_begin_ = 0;
};

}  // namespace trifold
