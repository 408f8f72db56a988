// LookupBatch: the lookups of one global batch on one rank, in memory that operations read. It has a *list* of lookups
// for each of the rank's shards, with the bags of the whole global batch, followed by a list for each replicated table,
// with the bags of the rank's own samples.
//
// Memory is allocated once, for the largest batch: a table has at most max_ids ids per bag, so the maximum
// number of ids is known (docs/decisions/0009). For at most L ids, over all lists of a rank, it is
//   4 L of ids, 4 for each bag, with weights 4 L more    written by the host (ops/copy_in.h)
//   28 L, with weights 32 L                              lookups sorted by row
// and for tables in a RowCache, in training, 8 L more that the host writes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "embedding/placement.h"
#include "embedding/stored/row_cache.h"
#include "ops/copy_in.h"

namespace trifold {

struct LookupOptions {
  int64_t samples = 0;    // this rank's samples in a global batch
  bool weighted = false;  // ids have weights
  bool mean = false;      // bags are averaged, which needs mean_factors
  DType dtype = DType::F32;
  int64_t bags = 1;     // bags per sample in each table; `samples` counts bags (embedding/table_groups.h)
  bool cached = false;  // rows of shards are in a RowCache, which numbers them
};

// The bytes of a batch on a rank.
struct LookupMemory {
  size_t written = 0;  // written by the host; with a device, an equal amount is pinned on the host
  size_t orders = 0;   // lookups sorted by row
  size_t sorting = 0;  // workspace of a device for sorting, shared by all batches
};

LookupMemory lookup_memory(const Placement& placement, int rank, const LookupOptions& options);

struct LookupBatch {
  // The lookups are not connected to tables yet. `ops` must outlive the batch.
  LookupBatch(const OpTable& ops, const Placement& placement, int rank, const LookupOptions& options);

  // Memory for the offsets of all bags of a list, the first of which is 0.
  int32_t* take_offsets(size_t list);
  // The ids of one list's bags, for the host to write; `weights` is null if ids have none.
  struct Ids {
    int32_t* ids = nullptr;
    float* weights = nullptr;
  };
  Ids take_ids(size_t list, int64_t count);
  // Call it after the host has written all ids: copies them to the device, if there is one, and sorts them for an
  // update if `sort` is set. Earlier users of the batch must be earlier on `stream`.
  void finish(bool sort, Stream& stream);
  // Fills the batch to its maximum size: bags with the most ids possible, all of row 0.
  void fill_up();

  // Bytes of memory that operations read.
  size_t bytes() const;
  std::span<const BagLookup> shard_lookups() const {
    return std::span(lookups).first(static_cast<size_t>(shards));
  }
  std::span<const BagLookup> copy_lookups() const {
    return std::span(lookups).subspan(static_cast<size_t>(shards));
  }

  // The capacity of a list; `rows` counts the rows of its part of a table.
  struct Capacity {
    int64_t rows, bags, ids, column;
    bool cached;
  };
  // A list in a RowCache: its ids in the memory that the host writes, and their rows once the cache has numbered them.
  // Lookups are then sorted by number, and LookupOrder::row holds slots.
  struct Cached {
    std::span<int32_t> ids;
    RowCache::Numbered row_memory;  // memory for `rows`; empty if rows are not numbered
    std::optional<RowCache::Numbered> rows;
  };

  bool weighted;
  int64_t shards = 0;  // the number of lists that belong to shards
  std::vector<Capacity> capacities;
  std::vector<BagLookup> lookups;
  std::vector<LookupOrder> orders;
  std::vector<Cached> cached;        // for each list
  std::vector<Tensor> mean_factors;  // for each table, in the vectors' type [b]: 1 / length, 0 for empty bags
  CopyIn written;                    // ids, offsets, weights and factors
  std::vector<Buffer> memory;        // memory of `orders`

 private:
  const OpTable& ops_;
  std::vector<BagLookup> sorted_;  // `lookups` with the ids by which they are sorted
};

}  // namespace trifold
