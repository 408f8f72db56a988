// RowCache keeps the rows of an embedding table that operations read; the whole table is in a RowStore.
//
// A table larger than host memory is stored in a file; one larger than device memory is stored in host memory or in a
// file. A *slot* is room for one row and its optimizer state in the memory that operations read. The slots are arrays
// [slots, ...] that operations use in place of the table. Before a batch is used, `begin_bring_in` assigns a slot to
// each of its rows, and `end_bring_in` replaces the rows in the batch's list of ids by slots. Batches are fetched one
// step ahead, so moving rows overlaps with the previous step: the file reads of all tables of a batch are in flight
// together, and on a device all moves are copies on the fetching stream.
//
// While a batch is brought in, the step of the previous batch may still change its own rows. Rows of the last two
// batches are therefore never evicted, and there must be slots for two batches. Among the other rows, CLOCK with use
// counters (an approximation of least frequently used) chooses the *victim*: a hand goes around the slots, decrements
// the counter of each (at most kMostUses), and evicts the first row whose counter is 0 already. Rows that only one
// batch has used start at 0, so rare rows do not displace frequent ones. A row that did not change is evicted without a
// write.
//
// A row has its initial value until it is first written. Until then it need not be in the store; between two steps it
// may be initialised again. A row that a checkpoint holds with its initial value also counts as never written. Values
// never depend on which rows are cached.
//
// Besides the slots, a cache takes bookkeeping_bytes of host memory. It is not thread-safe, but operations may use the
// arrays during its calls, for rows of the last two batches.
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
  // `arrays` have elements of `dtype` and their slots in the memory of `ops`. `batch_rows` is the largest number of ids
  // in a batch; slots >= min(rows, 2 batch_rows). `disk` is given exactly if the store is a file. Everything passed by
  // reference or pointer, and the memory of the slots, must outlive the cache.
  RowCache(const OpTable& ops, const RowStore& store, std::vector<RowArray> arrays, DType dtype, int64_t rows,
           int64_t slots, int64_t batch_rows, InitialRow initial, const RowDisk* disk);
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // Host memory of a cache, excluding its RowFile.
  static size_t bookkeeping_bytes(int64_t rows, int64_t slots, int64_t batch_rows);

  // The distinct rows of a batch, numbered from 0 in order of first appearance or, with `by_row`, in ascending order.
  struct Numbered {
    std::span<int32_t> numbers;  // [ids], output: the number of each id's row
    std::span<int32_t> slots;    // [ids], output: entry n < `count` is the slot of the row with number n
    int64_t count = 0;
    bool by_row = false;
  };
  // Brings the rows of the next batch into memory and replaces each id, a row, by its slot. `changes`: the batch will
  // change its rows. With `numbered` the rows are also numbered: ranks that cache other columns of the same rows get
  // the same numbers, with `by_row` even ranks without a cache, whereas slots differ between them. `stream` must have
  // passed the moves of the previous batch and the step of the batch before it; moves to a device are enqueued on
  // `stream`.
  //
  // Done in three calls, each made for all tables before the next one, so that their disk accesses overlap:
  // begin_bring_in assigns slots and evicts; once the disk's queue is finished, start_reads starts reading; once it is
  // finished again, end_bring_in completes the moves.
  void begin_bring_in(std::span<int32_t> ids, bool changes, Stream& stream);
  void start_reads();
  void end_bring_in(std::span<int32_t> ids, Numbered* numbered, Stream& stream);

  // Initialises rows again, in their slots or in the store; at most as many rows as a batch has ids. A batch that was
  // brought in, but not used yet, may contain them. No step and no bring_in may be in progress.
  void begin_anew(std::span<const int32_t> rows, Stream& stream);

  // Makes the store, with a file `rows_of`, complete: writes rows that changed on a device back, merges the file's log,
  // and initialises rows of shared memory that were never used. Call it before either is read. No step may be in
  // progress.
  void settle(Stream& stream);
  // To be called when others have written to the store: drops cached rows that may be outdated. With a file, fills free
  // slots with the most used rows, by the optimizer's sums of squares, or with any used rows if there are no such sums.
  void reload(Stream& stream);
  // All rows of an array, for checkpoints; null unless the store is a file. Only valid after `settle`.
  StoredRows* rows_of(size_t array) { return planes_.empty() ? nullptr : &planes_[array]; }

  // Sums over all batches of their distinct rows (wanted), of the rows that had a slot already (found), and of the rows
  // that were read from the file (read). With a file, the rest were still in memory to be written, or never written.
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
  // A row to be read from a file, and the index of its move in moves_.
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
  // Carries out moves_ with a shared store. `anew`: rows are initialised instead of read from the store.
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
  RowIndex index_;                // slot of each cached row
  std::vector<int32_t> row_of_slot_;
  std::vector<int32_t> last_batch_;  // per slot: the last batch that used it
  std::vector<uint8_t> uses_;        // per slot: counter of CLOCK
  std::vector<uint8_t> changed_;     // per slot: whether the row changed since it was read
  std::vector<int32_t> number_;      // per slot: number of its row while a batch is numbered, else -1
  std::vector<uint64_t> written_;    // a bit per row: whether it is in the store
  std::vector<int32_t> missing_;     // ids of the batch whose rows have no slot
  std::vector<RowMove> moves_;       // for the batch
  std::vector<Read> reads_;          // for the batch, in the order of pages
  std::vector<Plane> planes_;        // one per array; empty without a file
  int64_t filled_ = 0;               // slots that were ever used
  int64_t hand_ = 0;
  int32_t batch_ = 0;
  Counts counts_;
};

}  // namespace trifold
