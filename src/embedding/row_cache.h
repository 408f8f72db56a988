// RowCache: the part of an embedding table that operations read, while the table itself is in a file.
//
// A table that is larger than memory is kept in a FileMemory; as many of its rows as there are *slots* are in memory,
// with their optimizer's state, as arrays [slots, ...] that operations take for the table. Before a batch is used,
// `bring_in` finds a slot for each of its rows, and `translate` replaces the rows in lists of ids by slots. Batches are
// fetched one step ahead, so rows are read while the previous step computes: all reads of a batch are announced to
// the system first, and so are in flight together.
//
// A row that a batch needs may still be changed by the batch before it, whose step is in progress. So rows of the
// last two batches stay where they are, and the slots must suffice for two batches. Of the others, one that was
// seldom used makes room: a hand goes round the slots, passes over each as often as it was used lately (at most
// kMostUses), and takes the first that has no use left ("clock" with counters, an approximation of least frequently
// used). A row that was only looked at once goes first, so that rare rows do not displace frequent ones.
//
// Rows have their initial value until they are first written; they need not be in the file before. Values never
// depend on which rows are in memory.
//
// Memory beside the slots: bookkeeping_bytes. Not thread-safe; the arrays may be used at the same time, for rows of the
// last two batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "files/file_memory.h"

namespace trifold {

class RowCache {
 public:
  // One array of the table: values, or state of the optimizer. Row r is at file_begin + r row_bytes in the file.
  struct Array {
    size_t file_begin = 0;
    size_t row_bytes = 0;
    std::byte* slots = nullptr;  // [slots, row_bytes]
  };
  // Writes the initial value of a row, in the first array; the others begin as 0. Called on any thread.
  using Initial = std::function<void(int64_t row, std::byte* to)>;

  // `batch_rows` is the largest number of rows of a batch; slots >= min(rows, 2 batch_rows). References, and the
  // memory of slots, must outlive the cache.
  RowCache(const FileMemory& file, std::vector<Array> arrays, int64_t rows, int64_t slots, int64_t batch_rows,
           Initial initial);

  static size_t bookkeeping_bytes(int64_t rows, int64_t slots, int64_t batch_rows);

  // Brings the rows of the next batch into memory; a row may be listed twice. `changes`: the batch will change them.
  void bring_in(std::span<const int32_t> rows, bool changes);
  // Replaces each row by its slot; the rows must be those of the last batch.
  void translate(std::span<int32_t> rows) const;

  // Writes to the file what it lacks, so that its arrays are the whole table. No step may be in progress.
  void settle(ThreadPool& pool);
  // The file was written from outside: what is in memory is dropped.
  void reload();

  // Of all batches so far: rows, each counted once in a batch where batches list it once, and those that were in
  // memory already.
  struct Counts {
    int64_t wanted = 0, found = 0;
  };
  Counts counts() const { return counts_; }

 private:
  static constexpr int64_t kNone = -1;
  static constexpr uint8_t kMostUses = 3;

  struct Move {
    int32_t slot = 0;
    int32_t row = 0;      // that takes the slot
    int32_t victim = -1;  // that has to be written first; -1: none
  };

  size_t home_of(int32_t row) const;
  int64_t find(int32_t row) const;
  void insert(int32_t row, int32_t slot);
  void erase(int32_t row);
  int32_t free_slot();
  bool is_written(int64_t row) const {
    return (written_[static_cast<size_t>(row) / 64] >> (row % 64) & 1U) != 0;
  }
  void set_written(int64_t row) { written_[static_cast<size_t>(row) / 64] |= uint64_t{1} << (row % 64); }
  std::byte* slot_of(const Array& array, int64_t slot) const {
    return array.slots + static_cast<size_t>(slot) * array.row_bytes;
  }
  void plan_moves(bool changes);
  void announce() const;
  void carry_out();
  void settle_rows(int64_t begin, int64_t end) const;

  const FileMemory& file_;
  std::vector<Array> arrays_;
  int64_t rows_, slots_;
  Initial initial_;
  // The slot of a row: open addressing with linear probing. An entry is row << 32 | slot, or kEmpty.
  std::vector<uint64_t> index_;
  std::vector<int32_t> row_of_slot_;
  std::vector<int32_t> last_batch_;  // of each slot: the last batch that used it
  std::vector<uint8_t> uses_;        // lately
  std::vector<uint8_t> changed_;     // since it was read
  std::vector<uint64_t> written_;    // a bit for each row: whether it is in the file
  std::vector<int32_t> missing_;     // of the batch
  std::vector<Move> moves_;          // of the batch
  int64_t filled_ = 0;               // slots that were ever used
  int64_t hand_ = 0;
  int32_t batch_ = 0;
  Counts counts_;
};

}  // namespace trifold
