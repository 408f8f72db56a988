// LookupBatch: the lookups of one global batch on one rank, where operations read them. First those in its
// shards, with the bags of the whole global batch, then those in replicated tables, with its own samples'.
//
// Memory is taken once, for the largest batch: a table has at most max_ids ids in a bag, so how many ids
// there can be is known (docs/decisions/0009). For L ids at most, over all lists of a rank, that is
//   4 L of ids, 4 for each bag, with weights 4 L more    written by the host (ops/copy_in.h)
//   28 L, with weights 32 L                              their order by row
#pragma once

#include <cstdint>
#include <vector>

#include "embedding/placement.h"
#include "ops/copy_in.h"

namespace trifold {

struct LookupOptions {
  int64_t samples = 0;    // of this rank in a global batch
  bool weighted = false;  // ids have weights
  bool mean = false;      // bags are averaged: factors are needed
  DType dtype = DType::F32;
};

// Bytes of a batch on a rank.
struct LookupMemory {
  size_t written = 0;  // as many are pinned on the host of a device
  size_t orders = 0;
  size_t sorting = 0;  // of a device, while it sorts: one such piece does for all batches
};

LookupMemory lookup_memory(const Placement& placement, int rank, const LookupOptions& options);

struct LookupBatch {
  // The lookups have no tables yet. `ops` must outlive the batch.
  LookupBatch(const OpTable& ops, const Placement& placement, int rank, const LookupOptions& options);

  // Room for the offsets of all bags of a list, the first of them 0.
  int32_t* take_offsets(size_t list);
  // The ids of one list's bags where the host writes them; `weights` is null where they have none.
  struct Ids {
    int32_t* ids = nullptr;
    float* weights = nullptr;
  };
  Ids take_ids(size_t list, int64_t count);
  // Makes it as large as a batch can be: bags with as many ids as there can be, all of row 0.
  void fill_up();

  // Of memory that operations read.
  size_t bytes() const;
  std::span<const BagLookup> shard_lookups() const {
    return std::span(lookups).first(static_cast<size_t>(shards));
  }
  std::span<const BagLookup> copy_lookups() const {
    return std::span(lookups).subspan(static_cast<size_t>(shards));
  }

  // What a list has room for; rows are those of its part of a table.
  struct Room {
    int64_t rows, bags, ids, column;
  };

  bool weighted;
  int64_t shards = 0;  // lists that are shards'
  std::vector<Room> rooms;
  std::vector<BagLookup> lookups;
  std::vector<LookupOrder> orders;
  std::vector<Tensor> mean_factors;  // for each table, of the vectors' type [b]: 1 / length, 0 for empty bags
  CopyIn written;                    // ids, offsets, weights and factors
  std::vector<Buffer> memory;        // of orders
};

}  // namespace trifold
