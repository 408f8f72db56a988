// KeyCounts approximates in fixed memory how often keys have occurred, for keys that have no entry in a KeyTable. It is
// a count-min sketch with conservative updates (Cormode & Muthukrishnan, 2005; Estan & Varghese, 2002).
//
// Hashes assign a key one counter in each of kDepth rows of counters. `keep` raises these counters to the key's count
// where they are lower, and `of` returns the lowest. So `of` is never below the last count that was kept (up to kMost),
// and above it only if other keys share all kDepth counters: after n different keys, a key that was never kept has a
// count with the probability (1 - exp(-n / width))^kDepth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace trifold {

class KeyCounts {
 public:
  static constexpr size_t kDepth = 4;
  static constexpr size_t kMinWidth = 1 << 18;
  static constexpr uint32_t kMost = std::numeric_limits<uint16_t>::max();
  using Counter = uint16_t;

  // A counter that `keep` raised, and its value before.
  struct Change {
    size_t place;
    Counter before;
  };

  KeyCounts() = default;  // no counters: every count is 0
  // Sized for a table with entries for `entries` keys.
  explicit KeyCounts(size_t entries) : width_(width(entries)), counters_(kDepth * width_) {}

  uint32_t of(uint64_t key) const;
  // Keeps the count of a key; appends the counters that it raised to `changes`.
  void keep(uint64_t key, uint32_t count, std::vector<Change>& changes);
  // Exchanges a counter with Change::before.
  void swap(Change& change);

  // All counters, row by row; loading a checkpoint overwrites them.
  std::span<Counter> counters() { return counters_; }
  static size_t bytes(size_t entries) { return kDepth * width(entries) * sizeof(Counter); }

 private:
  static size_t width(size_t entries) { return entries < kMinWidth / 2 ? kMinWidth : 2 * entries; }
  size_t place(uint64_t key, size_t row) const;

  size_t width_ = 0;
  std::vector<Counter> counters_;
};

}  // namespace trifold
