// A stable sort of 64-bit keys by some digits, of many lists at a time, for gradients of embeddings: rows by
// id, and in their original order within an id. Least significant digit first; a pass counts the digits of
// tiles, sums the counts of many tiles, and moves every key to its position.
#pragma once

#include <span>

#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda {

static_assert(kSortListsAtOnce == kTablesAtOnce);

// Ids in place of keys: the key of id i has id - first in its upper half and i in the lower one; ids outside
// [first, first + held) have `held`, which sorts them after all others.
struct SortIds {
  const int32_t* at = nullptr;
  int64_t first = 0;
  int64_t held = 0;
};

// Keys are sorted by bits [32, 32 + bits). The result is in `keys` or in `spare`, see sorted_in_spare. If there
// are ids, `keys` need not hold anything.
struct SortList {
  uint64_t* keys;
  uint64_t* spare;
  int64_t n;
  int bits;
  SortIds ids;
};

// The number of passes over all lists: as many as the list with the most bits needs; the others use smaller
// digits.
int sort_passes(std::span<const SortList> lists);
inline bool sorted_in_spare(int passes) { return passes % 2 == 1; }
// At most kSortListsAtOnce lists; `scratch` has sort_workspace bytes (ops/cuda/workspace.h).
void sort_lists(CudaStream stream, void* scratch, std::span<const SortList> lists);

// The number of bits of numbers below `limit`.
constexpr int bits_below(int64_t limit) {
  int bits = 1;
  while (bits < 31 && (int64_t{1} << bits) < limit) ++bits;
  return bits;
}

}  // namespace trifold::cuda
