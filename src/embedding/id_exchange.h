// IdExchange sends the ids of a global batch to the ranks that hold their rows, all to all, and arranges them
// for lookups and updates. It does not depend on weights, so it runs ahead of the step that uses it.
//
// Ids are exchanged between hosts, also if lookups run on devices (docs/decisions/0009): hosts read them
// from files, ids are few bytes compared with their vectors, and the host needs their counts to
// know how much to copy, sort and launch. A device receives a batch in one copy and sorts it.
//
// Every rank packs one message for every rank, of 32-bit words: for each shard of the receiver, in order, the lengths
// of the sender's bags; then for each shard its ids, relative to the shard's first row, followed, if ids are weighted,
// by the bits of the weights. A shard of rows gets only ids of its rows. Messages are concatenated in rank order, which
// is the order of samples, so a shard has the bags of the global batch in order, and duplicates are summed in that
// order. A single rank sends nothing: its lists are the batch's. Bytes sent by each rank, for b samples, L ids per
// sample over all bags, and S shards on other ranks:
//   4 b S + 4 (ids for other ranks) + 8 (ranks - 1) for the messages' sizes
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "clicks/click_batch.h"
#include "comm/communicator.h"
#include "core/function_ref.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "embedding/lookup_batch.h"

namespace trifold {

inline int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Writes the message with the ids of `batch` for rank `receiver` to `to`, which has room for id_message_room words, and
// returns the number of its words.
int64_t pack_ids(const Placement& placement, const LookupOptions& options, const ClickBatch& batch,
                 int receiver, int32_t* to);
// The words of the longest message from a rank to another, which holds `shards`.
int64_t id_message_room(const Placement& placement, const LookupOptions& options,
                        std::span<const Shard> shards);

class IdExchange {
 public:
  // `comm` must not be used by others. References must outlive the exchange.
  IdExchange(const Placement& placement, Communicator& comm, const OpTable& ops,
             const LookupOptions& options);

  // A batch whose lookups are not connected to tables yet. A run needs two: one in use and one being filled.
  std::unique_ptr<LookupBatch> make_batch() const;
  // Sorts a batch of the maximum size on a device, so that the memory for sorting (LookupMemory::sorting) is
  // allocated now; during training the allocation would wait for all work in flight. `batch` is overwritten.
  void reserve_sorting(LookupBatch& batch, Stream& stream) const;
  // Collective. Fills `out` from this rank's samples; the caller finishes it (LookupBatch::finish). If an id is
  // outside its table, throws BadInput that names table, id, sample and rows, before anything is sent. Ids
  // are sent on the calling thread, with the pool of `stream`, which must be inline; lists are processed in parallel.
  void distribute(const ClickBatch& batch, LookupBatch& out, Stream& stream);
  int64_t bytes_sent() const { return comm_.bytes_sent(); }

 private:
  // Calls body(list) for [0, lists), on the pool's workers if there is enough to do.
  void for_each_list(ThreadPool& pool, size_t lists, FunctionRef<void(size_t list)> body) const;
  void check_ids(const ClickBatch& batch, ThreadPool& pool) const;
  [[noreturn]] void refuse_id(const ClickBatch& batch, size_t table) const;
  void pack(const ClickBatch& batch);
  void exchange(Stream& host);
  void unpack(LookupBatch& out) const;
  void take_own(const ClickBatch& batch, std::span<const size_t> tables, LookupBatch& out, size_t list,
                ThreadPool& pool) const;
  void take_mean_factors(const ClickBatch& batch, LookupBatch& out) const;

  const Placement& placement_;
  Communicator& comm_;
  const OpTable& ops_;
  LookupOptions options_;
  int64_t global_;
  Buffer send_, receive_;
  std::vector<int64_t> send_counts_, receive_counts_, ones_;
};

}  // namespace trifold
