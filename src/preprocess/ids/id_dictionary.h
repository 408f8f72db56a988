// IdDictionary numbers keys of 32 or 64 bits in order of first appearance, and counts them.
//
// An open-addressing hash table of (key, number), 8 bytes per slot for 32-bit keys and 16 for 64-bit ones, at most half
// full. Batched lookups prefetch the slots of later keys, because each lookup in a table larger than the cache is a
// cache miss. Key 0 always has number 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trifold {

// Key: uint32_t or uint64_t.
template <class Key>
class IdDictionary {
 public:
  static constexpr uint32_t kAbsent = ~uint32_t{0};

  IdDictionary();

  uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }
  // Current memory of the table and the lists.
  size_t bytes() const;

  // numbers[i] = number of keys[i]; a new key gets the next number. Counts each key, up to 2^32 - 1.
  void add(std::span<const Key> keys, uint32_t* numbers);
  // numbers[i] = number of keys[i], or kAbsent for an unknown key. Neither adds nor counts.
  void find(std::span<const Key> keys, uint32_t* numbers) const;

  Key key(uint32_t number) const { return keys_[number]; }
  uint32_t count(uint32_t number) const { return counts_[number]; }

 private:
  struct Place {
    Key key = 0;
    uint32_t behind = 0;  // number + 1; 0: free
  };

  // Index of the slot of a key, or of the free slot where it would be inserted.
  size_t place_of(Key key) const;
  size_t home(Key key) const { return static_cast<size_t>((key * uint64_t{0x9e3779b97f4a7c15}) >> shift_); }
  void reserve(size_t keys);

  int shift_ = 0;
  std::vector<Place> places_;
  std::vector<Key> keys_;  // by number
  std::vector<uint32_t> counts_;
};

extern template class IdDictionary<uint32_t>;
extern template class IdDictionary<uint64_t>;

}  // namespace trifold
