// RowIndex is a hash map of fixed capacity from rows to int32 values >= 0: open addressing with linear probing, at most
// two thirds full.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trifold {

class RowIndex {
 public:
  static constexpr int64_t kNone = -1;

  // Capacity for `most` rows.
  explicit RowIndex(int64_t most) : entries_(entries_for(most), kEmpty) {}
  static size_t bytes(int64_t most) { return entries_for(most) * sizeof(uint64_t); }

  // The value of `row`, or kNone.
  int64_t find(int32_t row) const {
    for (size_t at = home_of(row); entries_[at] != kEmpty; at = after(at))
      if (row_of(entries_[at]) == row) return number_of(entries_[at]);
    return kNone;
  }
  void prefetch(int32_t row) const { __builtin_prefetch(&entries_[home_of(row)]); }

  // Inserts or overwrites the value of `row`.
  void assign(int32_t row, int32_t number) {
    size_t at = home_of(row);
    while (entries_[at] != kEmpty && row_of(entries_[at]) != row) at = after(at);
    entries_[at] = static_cast<uint64_t>(static_cast<uint32_t>(row)) << 32 | static_cast<uint32_t>(number);
  }

  // Removes `row`, which must be present. Later entries of the probe sequence move into the gap (Knuth's algorithm R,
  // 6.4), so no tombstones are needed.
  void erase(int32_t row) {
    const size_t size = entries_.size();
    size_t gap = home_of(row);
    while (row_of(entries_[gap]) != row) gap = after(gap);
    for (size_t at = after(gap); entries_[at] != kEmpty; at = after(at)) {
      const size_t home = home_of(row_of(entries_[at]));
      const size_t from_home = at >= home ? at - home : at + size - home;
      const size_t from_gap = at >= gap ? at - gap : at + size - gap;
      if (from_home < from_gap) continue;
      entries_[gap] = entries_[at];
      gap = at;
    }
    entries_[gap] = kEmpty;
  }

  void clear() { std::fill(entries_.begin(), entries_.end(), kEmpty); }

 private:
  // An entry is row << 32 | value.
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  static size_t entries_for(int64_t most) { return static_cast<size_t>(most + most / 2 + 1); }
  static int32_t row_of(uint64_t entry) { return static_cast<int32_t>(entry >> 32); }
  static int32_t number_of(uint64_t entry) { return static_cast<int32_t>(static_cast<uint32_t>(entry)); }
  size_t after(size_t at) const { return at + 1 == entries_.size() ? 0 : at + 1; }
  // Multiplicative hashing (Knuth, vol. 3, 6.4), scaled to the entries.
  size_t home_of(int32_t row) const {
    constexpr uint32_t kGolden = 2654435769U;
    const uint64_t hash = static_cast<uint32_t>(row) * kGolden;
    return static_cast<size_t>(static_cast<uint32_t>(hash) * static_cast<uint64_t>(entries_.size()) >> 32);
  }

  std::vector<uint64_t> entries_;
};

}  // namespace trifold
