// Permutation: a pseudo-random order of [0, count) that needs no memory, a pure function of the key.
//
// A Feistel network: each round adds a function of one half to the other, which can be undone for any function, so the
// whole is a permutation (Luby and Rackoff, "How to construct pseudorandom permutations", 1988; four rounds). It
// permutes a power of four, less than four times the count; a result beyond the count is permuted again until it falls
// inside ("cycle walking"), which keeps it a permutation.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace trifold {

class Permutation {
 public:
  // count in [1, 2^62].
  Permutation(PhiloxKey key, int64_t count);

  // Position i of the order is element permutation(i).
  int64_t operator()(int64_t i) const;
  // The position of an element.
  int64_t inverse(int64_t element) const;

 private:
  uint64_t feistel(uint64_t value) const;
  uint64_t undo(uint64_t value) const;
  uint64_t mixed(uint64_t round, uint64_t half) const { return philox(key_, round << 32 | half)[0]; }

  PhiloxKey key_;
  uint64_t count_;
  int half_bits_ = 1;  // the network permutes integers of 2 * half_bits_ bits
};

}  // namespace trifold
