// RowFile: the records of a table's rows in a file, for a RowCache that keeps some of them in memory.
//
// A row that leaves memory is not written to its place, which would be a page read and a page written for one record. It
// is appended to a log in the same file, 56 records of 68 bytes to a page, and an index in memory says where it is. The
// rows of the table are cut into *ranges* of four MiB or more, each with units of the log of its own. When the log is nearly
// full, the range with most units is *merged*: its records are sorted by place, and its part of the file is read,
// changed and written in long runs, by a thread of its own. So the disk moves two pages for a few rows, and in
// sequence, as in a log-structured merge tree of two levels (O'Neil et al., Acta Informatica 1996).
//
// A merge changes no byte of rows that are not in the log, and those that are, are read from there until the merge is
// over: reads need not wait for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "core/stream.h"
#include "embedding/stored/row_index.h"
#include "embedding/stored/row_records.h"
#include "files/page_file.h"

namespace trifold {

// What the files of a rank's tables share: the thread that merges, with its memory.
class RowMerger {
 public:
  static constexpr int64_t kUnits = 128;           // the most that are merged at a time
  static constexpr size_t kRun = size_t{1} << 20;  // bytes read and written at a time

  // For files of these layouts.
  explicit RowMerger(std::span<const RowRecords> layouts);
  static size_t memory(std::span<const RowRecords> layouts);

  // A run of a file.
  std::byte* run() const { return run_.data(); }
  size_t run_bytes() const { return run_bytes_; }

 private:
  friend class RowFile;
  static size_t bytes_of_run(std::span<const RowRecords> layouts);
  static size_t bytes_of_log(std::span<const RowRecords> layouts);
  static int64_t most_records(std::span<const RowRecords> layouts);

  size_t run_bytes_;
  PageBuffer run_, log_;
  std::vector<uint64_t> order_;
  ThreadPool pool_{1};
  Stream worker_{Stream::Mode::Worker, pool_};
};

class RowFile {
 public:
  // `waiting`: about how many records the log holds.
  RowFile(const MemoryFolder& folder, int64_t rows, const RowRecords& layout, int64_t waiting);
  // Waits for a merge.
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  // Bytes of the file, and of memory beside a RowMerger and a PageQueue.
  static size_t file_bytes(int64_t rows, const RowRecords& layout, int64_t waiting);
  static size_t memory_bytes(int64_t rows, const RowRecords& layout, int64_t waiting);

  const RowRecords& layout() const { return layout_; }
  size_t bytes() const { return static_cast<size_t>(file_.pages()) * PageFile::kPage; }

  // Room for the record of a row that leaves memory; it must be filled before the next call.
  std::byte* put(int32_t row, PageQueue& queue, RowMerger& merger);
  // Where the record of a row is: in memory, or in some pages.
  struct Place {
    const std::byte* here = nullptr;
    int64_t page = 0, pages = 0;
    size_t offset = 0;  // in the first page
  };
  Place find(int32_t row) const;
  const PageFile& pages() const { return file_; }
  // Between two batches, when the queue is finished: begins a merge if one is due.
  void tidy(RowMerger& merger);

  // Brings all records to their places.
  void settle(PageQueue& queue, RowMerger& merger);
  // When settled, rows from `first` on: calls see(row, record) for as many of at most `count` as fit into a run, and
  // returns how many. `load(first, rows)`, also of rows nearby, says whether any of these records holds something; if
  // none does, what they hold is not specified. `see` returns whether it changed the record, which is then written back.
  int64_t visit(int64_t first, int64_t count, FunctionRef<bool(int64_t first, int64_t rows)> load,
                RowMerger& merger, FunctionRef<bool(int64_t row, std::byte* record)> see) const;

  // Rows that left memory so far, and the pages that were moved for that.
  struct Counts {
    int64_t put = 0, log_pages = 0;
    std::atomic<int64_t> merged_pages{0};  // read and written
  };
  const Counts& counts() const { return counts_; }

 private:
  static constexpr size_t kRange = size_t{4} << 20;  // the least bytes of a range

  struct Sizes {
    int64_t home_pages, range_rows, ranges, units;
    int64_t merged() const { return std::min(units, RowMerger::kUnits); }  // units, at most
  };
  static Sizes sizes_of(int64_t rows, const RowRecords& layout, int64_t waiting);

  struct Range {
    std::vector<int32_t> units;  // full ones, the oldest first
    int32_t tail = -1;           // the unit that is filled in memory
    int32_t filled = 0;          // records in it
  };
  struct Merge {
    RowMerger* by = nullptr;  // while it runs
    std::vector<int32_t> units;
    int32_t in_memory = 0;      // records of another, last unit, which is in memory
    std::vector<int32_t> rows;  // of the units' records
    std::exception_ptr error;   // of the merger's thread
    std::atomic<bool> done{false};
  };

  std::byte* tail_of(size_t range) const { return tails_.data() + range * layout_.unit_bytes(); }
  int64_t page_of_unit(int32_t unit) const { return sizes_.home_pages + unit * layout_.unit_pages; }
  size_t range_of(int32_t row) const { return static_cast<size_t>(row / sizes_.range_rows); }
  bool begin_merge(RowMerger& merger);
  void merge(RowMerger& merger);
  int64_t merge_run(RowMerger& merger, int64_t at, int64_t end);
  void end_merge();
  void wait(RowMerger& merger);
  void take_unit(Range& range, PageQueue& queue, RowMerger& merger);

  RowRecords layout_;
  Sizes sizes_;
  PageFile file_;
  RowIndex index_;  // of rows in the log: their record, unit of_unit + place
  std::vector<Range> ranges_;
  PageBuffer tails_;
  std::vector<int32_t> free_;  // units
  bool settled_ = true;        // nothing is in the log
  Merge merge_;
  Counts counts_;
};

}  // namespace trifold
