// A stable radix sort of many lists of 64-bit keys at a time, for gradients of embeddings, whose rows are sorted by id
// and keep their order within an id. The lowest digit is first. A pass over a digit counts the digits of tiles of keys,
// sums the counts over tiles, and moves every key to its position. The first pass counts for the second as well, while it
// moves keys: two passes are three launches, or five where a list has many tiles.
#pragma once

#include <span>

#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda {

static_assert(kSortListsAtOnce == kTablesAtOnce);

// Ids from which keys are made: the key of the i-th id has id - first in its upper half and i in its lower half. For
// ids outside [first, first + held) the upper half is `held`, which sorts them last.
struct SortIds {
  const int32_t* at = nullptr;
  int64_t first = 0;
  int64_t held = 0;
};

// A list of n keys to sort by bits [32, 32 + bits). The result is in `keys` or in `spare`, see sorted_in_spare. If
// `ids` are set, `keys` need not be initialised.
struct SortList {
  uint64_t* keys;
  uint64_t* spare;
  int64_t n;
  int bits;
  SortIds ids;
};

// The number of passes over all lists, which the list with the most bits determines; the other lists use smaller
// digits.
int sort_passes(std::span<const SortList> lists);
inline bool sorted_in_spare(int passes) { return passes % 2 == 1; }
// At most kSortListsAtOnce lists; `scratch` has sort_workspace bytes (ops/cuda/workspace.h).
void sort_lists(CudaStream stream, void* scratch, std::span<const SortList> lists);

// The number of bits, at least 1 and at most 31, that hold all integers in [0, limit).
constexpr int bits_below(int64_t limit) {
  int bits = 1;
  while (bits < 31 && (int64_t{1} << bits) < limit) ++bits;
  return bits;
}

}  // namespace trifold::cuda
