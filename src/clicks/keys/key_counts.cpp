#include "clicks/keys/key_counts.h"

#include <algorithm>
#include <utility>

#include "clicks/keys/mixed_key.h"

namespace trifold {

// Rows of counters have unlike hashes, because each mixes the key with a number of its own.
size_t KeyCounts::place(uint64_t key, size_t row) const {
  const uint64_t hash = mixed_key(key + 0x9e3779b97f4a7c15U * (row + 1));
  return row * width_ + static_cast<size_t>(((hash >> 32) * width_) >> 32);
}

uint32_t KeyCounts::of(uint64_t key) const {
  if (counters_.empty()) return 0;
  Counter least = kMost;
  for (size_t row = 0; row < kDepth; ++row) least = std::min(least, counters_[place(key, row)]);
  return least;
}

void KeyCounts::keep(uint64_t key, uint32_t count, std::vector<Change>& changes) {
  if (counters_.empty()) return;
  const auto kept = static_cast<Counter>(std::min(count, kMost));
  for (size_t row = 0; row < kDepth; ++row) {
    const size_t at = place(key, row);
    if (counters_[at] >= kept) continue;
    changes.push_back({at, counters_[at]});
    counters_[at] = kept;
  }
}

void KeyCounts::swap(Change& change) { std::swap(counters_[change.place], change.before); }

}  // namespace trifold
