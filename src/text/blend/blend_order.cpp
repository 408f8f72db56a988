#include "text/blend/blend_order.h"

#include <algorithm>

#include "core/error.h"
#include "core/small_list.h"

namespace trifold {

namespace {

constexpr size_t kMostDatasets = 32767;  // as in Megatron-LM

// Counts of a walk from a block's start; allocated once per thread.
std::span<int64_t> scratch_counts(size_t size) {
  static thread_local std::vector<int64_t> counts;
  counts.resize(std::max(counts.size(), size));
  return std::span(counts).first(size);
}

}  // namespace

BlendOrder::BlendOrder(BlendShares shares, int64_t samples, std::vector<int64_t> sizes, bool only_parts)
    : shares_(std::move(shares)), samples_(samples), sizes_(std::move(sizes)), only_parts_(only_parts) {
  check(datasets() > 0 && datasets() < kMostDatasets, "a blend has 1 to {} data sets, not {}",
        kMostDatasets - 1, datasets());
  std::vector<int64_t> taken(datasets(), 0);
  for (int64_t i = 0; i < samples_; ++i) {
    if (i % kBlock == 0) before_.insert(before_.end(), taken.begin(), taken.end());
    ++taken[next(i, taken)];
  }
  before_.insert(before_.end(), taken.begin(), taken.end());
}

size_t BlendOrder::next(int64_t index, std::span<const int64_t> taken) const {
  const int64_t so_far = std::max<int64_t>(index, 1);
  std::optional<size_t> most_behind;
  double largest = 0;
  for (size_t k = 0; k < taken.size(); ++k) {
    if (!sizes_.empty() && taken[k] == sizes_[k]) continue;
    if (only_parts_ && !shares_.takes_part(k, index)) continue;
    const double behind = shares_.due(k, so_far) - static_cast<double>(taken[k]);
    if (!most_behind || behind > largest) {
      largest = behind;
      most_behind = k;
    }
  }
  check(most_behind.has_value(), "no data set has a sample {} of the blend", index);
  return *most_behind;
}

void BlendOrder::count(int64_t samples, std::span<int64_t> counts) const {
  check(0 <= samples && samples <= samples_, "{} samples of a blend of {}", samples, samples_);
  const auto size = static_cast<std::ptrdiff_t>(datasets());
  if (samples == samples_) {
    std::copy(before_.end() - size, before_.end(), counts.begin());
    return;
  }
  const int64_t block = samples / kBlock;
  std::copy_n(before_.begin() + block * size, size, counts.begin());
  for (int64_t i = block * kBlock; i < samples; ++i) ++counts[next(i, counts)];
}

BlendOrder::Place BlendOrder::at(int64_t index) const {
  check(0 <= index && index < samples_, "sample {} of a blend of {}", index, samples_);
  const std::span<int64_t> taken = scratch_counts(datasets());
  count(index, taken);
  const size_t dataset = next(index, taken);
  return {dataset, taken[dataset]};
}

int64_t BlendOrder::taken(size_t dataset, int64_t samples) const {
  const std::span<int64_t> counts = scratch_counts(datasets());
  count(samples, counts);
  return counts[dataset];
}

}  // namespace trifold
