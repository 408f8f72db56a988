// IdDictionary: numbers 32-bit keys in the order they are first seen, and counts them.
//
// An open-addressing hash table of (key, number) in 8 bytes a place, at most half full; batches of keys are
// looked up with the places of later keys prefetched, because each lookup in a table larger than the cache is
// a trip to memory. Key 0 always has number 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trifold {

class IdDictionary {
 public:
  static constexpr uint32_t kAbsent = ~uint32_t{0};

  IdDictionary();

  uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }
  // Of the table and the lists as they are now.
  size_t bytes() const;

  // numbers[i] = number of keys[i], which gets the next number where it is new; counts each key, to at most
  // 2^32 - 1.
  void add(std::span<const uint32_t> keys, uint32_t* numbers);
  // The same without adding or counting: kAbsent for a key that has no number.
  void find(std::span<const uint32_t> keys, uint32_t* numbers) const;

  uint32_t key(uint32_t number) const { return keys_[number]; }
  uint32_t count(uint32_t number) const { return counts_[number]; }

 private:
  // The place of a key, or the free place where it belongs.
  size_t place_of(uint32_t key) const;
  size_t home(uint32_t key) const {
    return static_cast<size_t>((key * uint64_t{0x9e3779b97f4a7c15}) >> shift_);
  }
  void reserve(size_t keys);

  int shift_ = 0;
  std::vector<uint64_t> places_;  // key << 32 | number + 1; 0: free
  std::vector<uint32_t> keys_;    // by number
  std::vector<uint32_t> counts_;
};

}  // namespace trifold
