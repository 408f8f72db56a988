// StateLayout: the masters, the update rule's state and the average of the weights of the elements that a rank owns, in
// one allocation, one tensor after the other. A tensor has memory for all parameters, or only for matrices, or only for
// the others, if the rule keeps other state of them (optim/muon.h). Its size is the same on all ranks of a stage: that of
// the largest slice.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "data_parallel/flat_layout.h"
#include "optim/update_rule.h"

namespace trifold {

// Elements of a window through which an update converts state that is stored in 16 bits.
constexpr int64_t kNarrowWindow = int64_t{1} << 18;
static_assert(kNarrowWindow % kGrain == 0);

// A tensor of the state.
struct StatePart {
  enum class Of { All, Matrices, Others };
  std::string_view name;  // prefix of the names in checkpoints: "param", "adam_m", "ema"
  DType type;
  Of of = Of::All;
};

// The tensors, in the order of memory: masters, if weights have 16 bits; the rule's state; the average, if there is one.
// The names belong to `rule` or are constants.
std::vector<StatePart> state_tensors(const UpdateRule& rule, const OptimizerConfig& config, DType weights);

class StateLayout {
 public:
  // `sharded`: the rank owns a slice of every unit, instead of whole units.
  StateLayout(const FlatLayout& layout, bool sharded, const UpdateRule& rule, const OptimizerConfig& config,
              DType weights);

  // Says which segments the rank owns, by unit; needed by `offset` alone.
  void own(const std::vector<std::vector<FlatLayout::Segment>>& segments);

  size_t size() const { return tensors_.size(); }
  const StatePart& operator[](size_t index) const { return tensors_[index]; }
  bool has(size_t index, bool matrix) const;
  // The byte at which a segment of tensor `index` begins: a part of an owned segment, or owned segments that are joined.
  size_t offset(size_t index, const FlatLayout::Segment& segment) const;
  // Bytes of all tensors.
  size_t bytes() const;
  // Bytes of a window of `window` elements of all tensors (zero/param_store.h, kOffloadWindow).
  size_t window_bytes(int64_t window) const;
  // Bytes of memory in which an update computes with state that is stored in another type than `wide`.
  size_t wide_bytes(DType wide) const;

 private:
  static constexpr size_t kSets = 3;  // values of StatePart::Of
  int64_t elements(size_t index) const { return elements_[static_cast<size_t>(tensors_[index].of)]; }

  bool sharded_;
  std::vector<StatePart> tensors_;
  std::array<int64_t, kSets> elements_{};  // elements of a tensor, by set
  // By set and unit: the element at which the unit begins.
  std::array<std::vector<int64_t>, kSets> begin_;
  std::vector<bool> matrix_;  // by parameter
  std::vector<int64_t> from_,
      at_;  // by parameter: where its owned segment begins, in flat buffers and in its set
};

}  // namespace trifold
