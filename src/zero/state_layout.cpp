#include "zero/state_layout.h"

#include <algorithm>

#include "zero/matrix_plan.h"

namespace trifold {

namespace {

constexpr auto kAll = static_cast<size_t>(StatePart::Of::All);

int64_t whole_grains(int64_t elements) { return (elements + kGrain - 1) / kGrain * kGrain; }

StatePart::Of set_of(bool matrix) { return matrix ? StatePart::Of::Matrices : StatePart::Of::Others; }

}  // namespace

std::vector<StatePart> state_tensors(const UpdateRule& rule, const OptimizerConfig& config, DType weights) {
  const DType wide = accumulate_type(weights);
  std::vector<StatePart> tensors;
  if (wide != weights) tensors.push_back({"param", wide, StatePart::Of::All});
  for (size_t i = 0; i < rule.state_names().size(); ++i) {
    const bool matrices = rule.has_state(i, true), others = rule.has_state(i, false);
    tensors.push_back({rule.state_names()[i], rule.stored_type(i, wide),
                       matrices && others ? StatePart::Of::All : set_of(matrices)});
  }
  if (config.ema) tensors.push_back({"ema", wide, StatePart::Of::All});
  return tensors;
}

StateLayout::StateLayout(const FlatLayout& layout, bool sharded, const UpdateRule& rule,
                         const OptimizerConfig& config, DType weights)
    : sharded_(sharded), tensors_(state_tensors(rule, config, weights)) {
  const ParamList& params = layout.params();
  for (int i = 0; i < params.size(); ++i) matrix_.push_back(rule.takes_matrices() && is_matrix(params[{i}]));
  elements_[kAll] = sharded ? layout.trained_shard_elements() : layout.trained_elements();
  for (const FlatLayout::Unit& unit : layout.units()) {
    std::array<int64_t, kSets> most{};
    for (int slice = 0; slice < (unit.frozen ? 0 : sharded ? unit.slices : 1); ++slice) {
      std::array<int64_t, kSets> count{};
      for (const FlatLayout::Segment& segment :
           layout.segments(unit, sharded ? std::optional(slice) : std::nullopt))
        count[static_cast<size_t>(set_of(matrix_[static_cast<size_t>(segment.id.index)]))] +=
            whole_grains(segment.count);
      for (size_t set = 0; set < kSets; ++set) most[set] = std::max(most[set], count[set]);
    }
    for (size_t set = 0; set < kSets; ++set) {
      begin_[set].push_back(elements_[set]);
      if (set != kAll) elements_[set] += most[set];
    }
  }
}

void StateLayout::own(const std::vector<std::vector<FlatLayout::Segment>>& segments) {
  from_.assign(matrix_.size(), 0);
  at_.assign(matrix_.size(), 0);
  for (size_t unit = 0; unit < segments.size(); ++unit) {
    std::array<int64_t, kSets> next{};
    for (size_t set = 0; set < kSets; ++set) next[set] = begin_[set][unit];
    for (const FlatLayout::Segment& segment : segments[unit]) {
      const auto param = static_cast<size_t>(segment.id.index);
      const auto set = static_cast<size_t>(set_of(matrix_[param]));
      from_[param] = segment.flat;
      at_[param] = next[set];
      next[set] += whole_grains(segment.count);
    }
  }
}

bool StateLayout::has(size_t index, bool matrix) const {
  return tensors_[index].of == StatePart::Of::All || tensors_[index].of == set_of(matrix);
}

size_t StateLayout::offset(size_t index, const FlatLayout::Segment& segment) const {
  size_t begin = 0;
  for (size_t i = 0; i < index; ++i) begin += static_cast<size_t>(elements(i)) * size_of(tensors_[i].type);
  const auto param = static_cast<size_t>(segment.id.index);
  const int64_t element = tensors_[index].of != StatePart::Of::All
                              ? at_[param] + segment.flat - from_[param]
                              : (sharded_ ? segment.shard : segment.flat);
  return begin + static_cast<size_t>(element) * size_of(tensors_[index].type);
}

size_t StateLayout::bytes() const {
  return window_bytes(std::max({elements_[0], elements_[1], elements_[2]}));
}

size_t StateLayout::window_bytes(int64_t window) const {
  size_t bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i)
    bytes += static_cast<size_t>(std::min(elements(i), window)) * size_of(tensors_[i].type);
  return bytes;
}

size_t StateLayout::wide_bytes(DType wide) const {
  size_t bytes = 0;
  for (const StatePart& tensor : tensors_)
    if (tensor.type != wide)
      bytes += static_cast<size_t>(std::min(elements_[kAll], kNarrowWindow)) * size_of(wide);
  return bytes;
}

}  // namespace trifold
