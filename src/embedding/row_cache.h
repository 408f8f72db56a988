// RowCache: the part of an embedding table that operations read, while the table itself is in a RowStore.
//
// A table that is larger than memory is kept in a file, and one that is larger than a device's memory in that of the
// host or in a file. As many of its rows as there are *slots* are where operations read them, with their optimizer's
// state, as arrays [slots, ...] that operations take for the table. Before a batch is used, `bring_in` finds a slot for
// each of its rows and replaces the rows in the batch's list of ids by slots. Batches are fetched one step ahead, so
// rows are moved while the previous step computes: all reads of a batch from a file are announced to the system first,
// and so are in flight together; on a device all moves are copies on the fetching stream.
//
// A row that a batch needs may still be changed by the batch before it, whose step is in progress. So rows of the
// last two batches stay where they are, and the slots must suffice for two batches. Of the others, one that was
// seldom used makes room: a hand goes around the slots, passes over each as often as it was used lately (at most
// kMostUses), and takes the first that has no use left ("clock" with counters, an approximation of least frequently
// used). A row that was only looked at once goes first, so that rare rows do not displace frequent ones.
//
// Rows have their initial value until they are first written; until then they need not be in the store, and between two
// steps they may be initialised again. Values never depend on which rows are in memory.
//
// Memory in addition to the slots: bookkeeping_bytes, on the host. Not thread-safe; the arrays may be used at the same
// time, for rows of the last two batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/stream.h"
#include "embedding/row_store.h"
#include "embedding/row_transfer.h"

namespace trifold {

class RowCache {
 public:
  // `arrays` are of `dtype`, with slots in the memory of `ops`. `batch_rows` is the largest number of ids of a batch;
  // slots >= min(rows, 2 batch_rows). References, and the memory of slots, must outlive the cache.
  RowCache(const OpTable& ops, const RowStore& store, std::vector<RowArray> arrays, DType dtype, int64_t rows,
           int64_t slots, int64_t batch_rows, InitialRow initial);

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
  // other columns of them, and with `by_row` also on those that have no cache; by slot they are not. `stream` must have passed the moves of the batch before, and
  // the step of the batch before that; moves to a device are enqueued on it.
  void bring_in(std::span<int32_t> ids, bool changes, Numbered* numbered, Stream& stream);

  // Initialises rows again, at most as many as a batch has, wherever they are. A batch that was brought in may have
  // them; it is used after this call. No step and no bring_in may be in progress.
  void begin_anew(std::span<const int32_t> rows, Stream& stream);

  // Writes to the store what it lacks, so that its arrays are the whole table. No step may be in progress.
  void settle(Stream& stream);
  // The store was written from outside: what is in memory is dropped.
  void reload();

  // Over all batches so far: distinct rows, and those that were in memory already.
  struct Counts {
    int64_t wanted = 0, found = 0;
  };
  Counts counts() const { return counts_; }

 private:
  static constexpr int64_t kNone = -1;
  static constexpr uint8_t kMostUses = 3;

  size_t home_of(int32_t row) const;
  int64_t find(int32_t row) const;
  void insert(int32_t row, int32_t slot);
  void erase(int32_t row);
  int32_t free_slot();
  bool is_written(int64_t row) const {
    return (written_[static_cast<size_t>(row) / 64] >> (row % 64) & 1U) != 0;
  }
  void set_written(int64_t row) { written_[static_cast<size_t>(row) / 64] |= uint64_t{1} << (row % 64); }
  void plan_moves(bool changes);
  void announce() const;
  // `anew`: rows are initialised instead of read from the store.
  void carry_out(Stream& stream, bool anew = false);
  void move_on_host(bool anew) const;
  void number(std::span<const int32_t> slots, Numbered& numbered);
  void write_changed(Stream& stream);
  void settle_rows(int64_t begin, int64_t end) const;

  const RowStore& store_;
  std::vector<RowArray> arrays_;
  std::optional<RowTransfer> transfer_;  // on a device
  int64_t rows_, slots_, batch_rows_;
  InitialRow initial_;
  // The slot of a row: open addressing with linear probing. An entry is row << 32 | slot, or kEmpty.
  std::vector<uint64_t> index_;
  std::vector<int32_t> row_of_slot_;
  std::vector<int32_t> last_batch_;  // of each slot: the last batch that used it
  std::vector<uint8_t> uses_;        // lately
  std::vector<uint8_t> changed_;     // since it was read
  std::vector<int32_t> number_;      // of each slot, while a batch is numbered; else -1
  std::vector<uint64_t> written_;    // a bit for each row: whether it is in the store
  std::vector<int32_t> missing_;     // of the batch
  std::vector<RowMove> moves_;       // of the batch
  int64_t filled_ = 0;               // slots that were ever used
  int64_t hand_ = 0;
  int32_t batch_ = 0;
  Counts counts_;
};

}  // namespace trifold
