// IdExchange: brings the ids of a global batch to the ranks that hold the rows, all to all, and puts them in
// the form lookups and updates need. Nothing of it depends on weights, so it runs ahead of the step that uses
// it.
//
// Ids travel between hosts, also where lookups are on devices (docs/decisions/0009): they are read from files
// there, are few bytes beside the vectors they stand for, and their counts must be known there, to say how
// much is copied, sorted and launched. A device gets a batch in one copy and sorts it.
//
// Every rank packs one message for every rank: for each shard there, in order, the lengths of this rank's
// bags, then for each shard its ids, counted from the shard's first row (and after them, where ids are
// weighted, the bits of the weights). A shard of rows gets the ids of its rows only. Messages are
// concatenated in the order of the ranks, which is that of the samples, so the bags of a shard are those of
// the global batch in order, and duplicates will be summed in that order. Bytes sent by each rank, for b
// samples of L ids on average over all its bags, S shards elsewhere:
//   4 b S + 4 (ids for other ranks) + 8 (ranks - 1) for the messages' sizes
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/communicator.h"
#include "core/tensor.h"
#include "data/click_batch.h"
#include "embedding/placement.h"
#include "ops/copy_in.h"

namespace trifold {

inline int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// The lookups of one global batch on one rank: first those in its shards (bags of the whole global batch),
// then those in replicated tables (its own samples' bags). Memory is taken once, for the largest batch; a run
// keeps two, one in use and one being filled.
struct LookupBatch {
  LookupBatch(const OpTable& ops, size_t bytes) : written(ops, bytes) {}

  int64_t shards = 0;  // entries of the lists that are shards'
  std::vector<BagLookup> lookups;
  std::vector<LookupOrder> orders;
  std::vector<Tensor> mean_factors;  // for each table, of the vectors' type [b]: 1 / length, 0 for empty bags
  CopyIn written;                    // ids, offsets, weights and factors
  std::vector<Buffer> memory;        // of orders

  // Of memory that operations read; as many as `written` has are pinned on the host of a device.
  size_t bytes() const {
    size_t bytes = written.bytes();
    for (const Buffer& buffer : memory) bytes += buffer.bytes();
    return bytes;
  }
  std::span<const BagLookup> shard_lookups() const {
    return std::span(lookups).first(static_cast<size_t>(shards));
  }
  std::span<const BagLookup> copy_lookups() const {
    return std::span(lookups).subspan(static_cast<size_t>(shards));
  }
};

class IdExchange {
 public:
  struct How {
    int64_t samples = 0;    // of this rank in a global batch
    bool weighted = false;  // ids have weights
    bool mean = false;      // bags are averaged: factors are needed
    DType dtype = DType::F32;
  };
  // `comm` is this object's own. References must outlive it.
  IdExchange(const Placement& placement, Communicator& comm, const OpTable& ops, const How& how);

  // A batch whose lookups have no tables yet.
  std::unique_ptr<LookupBatch> make_batch() const;
  // Collective. Fills `out` from this rank's samples, sorted for an update where `sort` is set. Ids travel on
  // the calling thread; `stream`, which must be inline, then carries the copy to its device and the sorting.
  // What used `out` before must come before that on it.
  void distribute(const ClickBatch& batch, LookupBatch& out, bool sort, Stream& stream);
  int64_t bytes_sent() const { return comm_.bytes_sent(); }

 private:
  void pack(const ClickBatch& batch);
  int64_t pack_shard(const ClickBatch& batch, const Shard& shard, int32_t* lengths, int32_t* ids) const;
  void exchange(Stream& host);
  void unpack(LookupBatch& out) const;
  void take_copies(const ClickBatch& batch, LookupBatch& out) const;
  void take_mean_factors(const ClickBatch& batch, LookupBatch& out) const;

  const Placement& placement_;
  Communicator& comm_;
  const OpTable& ops_;
  How how_;
  int64_t global_;
  Buffer send_, receive_;
  std::vector<int64_t> send_counts_, receive_counts_, ones_;
};

}  // namespace trifold
