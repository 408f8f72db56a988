// RowCache: the part of an embedding table that operations read, while the table itself is in a RowStore.
//
// A table that is larger than memory is kept in a file, and one that is larger than a device's memory in that of the
// host or in a file. As many of its rows as there are *slots* are where operations read them, with their optimizer's
// state, as arrays [slots, ...] that operations take for the table. Before a batch is used, `begin_bring_in` finds a
// slot for each of its rows, and `end_bring_in` replaces the rows in the batch's list of ids by slots. Batches are
// fetched one step ahead, so rows are moved while the previous step computes: the reads of all tables that a batch needs
// from files are in flight together; on a device all moves are copies on the fetching stream.
//
// A row that a batch needs may still be changed by the batch before it, whose step is in progress. So rows of the
// last two batches stay where they are, and the slots must suffice for two batches. Of the others, one that was
// seldom used makes room: a hand goes around the slots, passes over each as often as it was used lately (at most
// kMostUses), and takes the first that has no use left ("clock" with counters, an approximation of least frequently
// used). A row that was only looked at once goes first, so that rare rows do not displace frequent ones. A row that did
// not change leaves without a write.
//
// Rows have their initial value until they are first written; until then they need not be in the store, and between two
// steps they may be initialised again. A row that a checkpoint has with its initial value was never written, either. Values
// never depend on which rows are in memory.
//
// Memory in addition to the slots: bookkeeping_bytes, on the host. Not thread-safe; the arrays may be used at the same
// time, for rows of the last two batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/stored_rows.h"
#include "core/stream.h"
#include "embedding/stored/row_index.h"
#include "embedding/stored/row_store.h"
#include "embedding/stored/row_transfer.h"

namespace trifold {

class RowCache final : private PageQueue::Taker {
 public:
  // `arrays` are of `dtype`, with slots in the memory of `ops`. `batch_rows` is the largest number of ids of a batch;
  // slots >= min(rows, 2 batch_rows). `disk` is given if the store is a file. References, and the memory of slots, must
  // outlive the cache.
  RowCache(const OpTable& ops, const RowStore& store, std::vector<RowArray> arrays, DType dtype, int64_t rows,
           int64_t slots, int64_t batch_rows, InitialRow initial, const RowDisk* disk);
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // Without what a RowFile has.
  static size_t bookkeeping_bytes(int64_t rows, int64_t slots, int64_t batch_rows);

  // The rows of a batch, numbered in the order of their first appearance or, with `by_row`, in their own.
  struct Numbered {
    std::span<int32_t> numbers;  // that of each id
    std::span<int32_t> slots;    // that of each number, in `count` entries; as long as the ids
    int64_t count = 0;
    bool by_row = false;
  };
  // Brings the rows of the next batch into memory and replaces each id, a row, by its slot. `changes`: the batch will
  // change them. Numbers the rows if `numbered` is given: by number they are in the same order on all ranks that cache
  // other columns of them, and with `by_row` also on those that have no cache; by slot they are not. `stream` must have
  // passed the moves of the batch before, and the step of the batch before that; moves to a device are enqueued on it.
  //
  // In three parts, between which the same is done for other tables. First slots are found and rows leave them; then, when
  // the queue of the disk is finished, `start_reads`; and when it is finished again, the rest.
  void begin_bring_in(std::span<int32_t> ids, bool changes, Stream& stream);
  void start_reads();
  void end_bring_in(std::span<int32_t> ids, Numbered* numbered, Stream& stream);

  // Initialises rows again, at most as many as a batch has, wherever they are. A batch that was brought in may have
  // them; it is used after this call. No step and no bring_in may be in progress.
  void begin_anew(std::span<const int32_t> rows, Stream& stream);

  // Call it before the store, or `rows_of`, is read. No step may be in progress.
  void settle(Stream& stream);
  // The store was written from outside: rows in memory that may be older are dropped. From a file, those that were used
  // most, as their optimizer's sums of squares say, enter slots that are free; without such sums, any that were used.
  void reload(Stream& stream);
  // All rows of an array, with a file; when settled.
  StoredRows* rows_of(size_t array) { return planes_.empty() ? nullptr : &planes_[array]; }

  // Over all batches so far: distinct rows, those that were in memory already, and those that were read from the file. The
  // rest were on their way there, or never written.
  struct Counts {
    int64_t wanted = 0, found = 0, read = 0;
  };
  Counts counts() const { return counts_; }

 private:
  static constexpr uint8_t kMostUses = 3;

  // An array as a checkpoint sees it.
  class Plane final : public StoredRows {
   public:
    Plane(RowCache& cache, size_t array) : cache_(&cache), array_(array) {}
    void read(int64_t first, int64_t count, std::byte* to) override;
    void write(int64_t first, int64_t count, const std::byte* from) override;

   private:
    RowCache* cache_;
    size_t array_;
  };
  // A row that is read from a file, and the move that wants it.
  struct Read {
    int64_t page, pages;
    uint32_t offset;
    int32_t move;
  };

  int32_t free_slot();
  bool is_written(int64_t row) const {
    return (written_[static_cast<size_t>(row) / 64] >> (row % 64) & 1U) != 0;
  }
  void set_written(int64_t row) { written_[static_cast<size_t>(row) / 64] |= uint64_t{1} << (row % 64); }
  bool any_written(int64_t first, int64_t count) const;
  uint32_t weight_of(const std::byte* record) const;
  std::vector<uint32_t> sampled_weights() const;
  void bring_in_used(Stream& stream);
  int64_t visit(int64_t first, int64_t count, FunctionRef<bool(int64_t row, std::byte* record)> see) const;
  bool begins_with(int64_t row, size_t array, const std::byte* values);
  int64_t slot_on_host(int64_t row) const;
  void plan_moves(bool changes);
  void let_leave(Stream& stream);
  void take(int64_t tag, const std::byte* pages) override;
  std::byte* destination(size_t array, int64_t move) const;
  void enter(int64_t move, const std::byte* record) const;
  // `anew`: rows are initialised instead of read from the store.
  void move_shared(bool anew, Stream& stream);
  void begin_stored(int32_t row);
  void number(std::span<const int32_t> slots, Numbered& numbered);
  void write_changed(Stream& stream);
  void settle_shared(Stream& stream);

  const RowStore& store_;
  std::vector<RowArray> arrays_;
  std::optional<RowTransfer> transfer_;  // on a device
  const RowDisk* disk_;
  int64_t rows_, slots_, batch_rows_;
  DType dtype_;
  InitialRow initial_;
  std::vector<std::byte> first_;  // initial values of a row
  RowIndex index_;                // slots of rows
  std::vector<int32_t> row_of_slot_;
  std::vector<int32_t> last_batch_;  // of each slot: the last batch that used it
  std::vector<uint8_t> uses_;        // lately
  std::vector<uint8_t> changed_;     // since it was read
  std::vector<int32_t> number_;      // of each slot, while a batch is numbered; else -1
  std::vector<uint64_t> written_;    // a bit for each row: whether it is in the store
  std::vector<int32_t> missing_;     // of the batch
  std::vector<RowMove> moves_;       // of the batch
  std::vector<Read> reads_;          // of the batch
  std::vector<Plane> planes_;        // with a file
  int64_t filled_ = 0;               // slots that were ever used
  int64_t hand_ = 0;
  int32_t batch_ = 0;
  Counts counts_;
};

}  // namespace trifold
