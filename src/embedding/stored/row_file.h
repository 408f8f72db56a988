// RowFile stores the rows of a table in a file, for a RowCache that keeps some of them in memory.
//
// Each row has a record (row_records.h) with a fixed *place* in the file. Writing an evicted row to its place would
// read and write a page for one record. Instead the record is appended to a log in the same file, 56 records of 68
// bytes to a page, and an index in memory maps the row to it. The rows of the table are cut into *ranges* of four MiB
// or more, each with its own units of the log. When the log is nearly full, the range with most units is *merged*: a
// separate thread sorts its records by place, and reads, changes and writes its part of the file in long runs. The disk
// thus transfers pages for several rows each, and sequentially, as in a log-structured merge tree of two levels
// (O'Neil et al., Acta Informatica 1996).
//
// Reads need not wait for a merge: it does not change rows that are not in the log, and rows that are in the log are
// read from it until the merge has ended.
//
// Layout of the file. It consists of pages of P = 4096 bytes; integers and floats are little-endian. It has no header
// and no checksums: the file has no name, is read only by the process that created it, and ends with it.
//
//   offset               bytes                    content
//   0                    home_pages * P           the place of each row, pages(rows) pages
//   home_pages * P       units * unit_pages * P   the log: unit 0, unit 1, ...; unused or merged units hold old bytes
//
//   record (`record` bytes), at offset begin(row)
//   0                    values                   the row's values, in the table's dtype
//   values               state                    the optimizer's first array; absent without state
//   values + state       second                   its second array (Adam, FTRL); absent otherwise
//
//   begin(row), if of_page = floor(P / record) records fill at least 7/8 of a page
//     row / of_page * P + row % of_page * record  the end of each page is unused
//   begin(row), otherwise
//     row * record                                a record may cross pages
//
//   unit (unit_pages * P bytes), of_unit = floor(unit_pages * P / (record + 4))
//   0                    of_unit * record         records in the order in which they were put; the last one put counts
//   of_unit * record     rest                     unused, less than record + 4 bytes
//   end - 4 * of_unit    4 * of_unit              i32 [of_unit]: the row of each record
//
// For example f32 [rows, 16] with row-wise Adagrad: record = 64 + 4 = 68, of_page = 60, unit_pages = 1, of_unit = 56.
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

// RowMerger owns the merging thread and its buffers, which all files of a rank share.
class RowMerger {
 public:
  static constexpr int64_t kUnits = 128;           // most units merged at a time
  static constexpr size_t kRun = size_t{1} << 20;  // bytes read and written at a time

  // Buffers for files with these layouts.
  explicit RowMerger(std::span<const RowRecords> layouts);
  static size_t memory(std::span<const RowRecords> layouts);

  // Buffer for a run of a file, also for RowFile::visit.
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
  // Creates the file in `folder`. `waiting`: about how many records the log can hold.
  RowFile(const MemoryFolder& folder, int64_t rows, const RowRecords& layout, int64_t waiting);
  // Waits until no merge is in progress.
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  // Bytes of the file, and of its memory, without the shared RowMerger and PageQueue.
  static size_t file_bytes(int64_t rows, const RowRecords& layout, int64_t waiting);
  static size_t memory_bytes(int64_t rows, const RowRecords& layout, int64_t waiting);

  const RowRecords& layout() const { return layout_; }
  size_t bytes() const { return static_cast<size_t>(file_.pages()) * PageFile::kPage; }

  // Returns memory in the log for the record of an evicted row; the caller fills it before the next call. It may wait
  // for a merge if the log is full.
  std::byte* put(int32_t row, PageQueue& queue, RowMerger& merger);
  // Where the record of a row is: in memory if `memory` is set, else in pages of the file.
  struct Location {
    const std::byte* memory = nullptr;
    int64_t page = 0, pages = 0;
    size_t offset = 0;  // in the first page
  };
  Location find(int32_t row) const;
  const PageFile& pages() const { return file_; }
  // Starts a merge if one is due. Call it between two batches, when the queue is finished.
  void tidy(RowMerger& merger);

  // Merges the whole log: afterwards each record is at its place.
  void settle(PageQueue& queue, RowMerger& merger);
  // Calls see(row, record) for rows from `first` on, as many as fit into a run but at most `count`, and returns how
  // many. `see` returns whether it changed the record; changed records are written back. load(first, rows) returns
  // whether any of these rows was ever written, and is called for the visited rows and for their neighbours in the same
  // pages. If it is false for the visited rows, their records are not read and have unspecified bytes. Only valid after
  // `settle`.
  int64_t visit(int64_t first, int64_t count, FunctionRef<bool(int64_t first, int64_t rows)> load,
                RowMerger& merger, FunctionRef<bool(int64_t row, std::byte* record)> see) const;

  // Rows evicted to the file so far, and the pages transferred for them.
  struct Counts {
    int64_t put = 0, log_pages = 0;
    std::atomic<int64_t> merged_pages{0};  // read and written
  };
  const Counts& counts() const { return counts_; }

 private:
  static constexpr size_t kRange = size_t{4} << 20;  // smallest size of a range, in bytes

  struct Sizes {
    int64_t home_pages, range_rows, ranges, units;
    int64_t merged() const { return std::min(units, RowMerger::kUnits); }  // most units of a merge
  };
  static Sizes sizes_of(int64_t rows, const RowRecords& layout, int64_t waiting);

  struct Range {
    std::vector<int32_t> units;  // full units, oldest first
    int32_t tail = -1;           // the unit being filled in memory; -1: none
    int32_t filled = 0;          // records in the tail
  };
  struct Merge {
    RowMerger* by = nullptr;  // while the merge runs, else null
    std::vector<int32_t> units;
    int32_t in_memory = 0;      // records of a last unit, which is in memory
    std::vector<int32_t> rows;  // row of each record of the units
    std::exception_ptr error;   // thrown on the merger's thread
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
  RowIndex index_;  // for rows in the log: unit * of_unit + position in the unit
  std::vector<Range> ranges_;
  PageBuffer tails_;
  std::vector<int32_t> free_;  // unused units
  bool settled_ = true;        // the log is empty
  Merge merge_;
  Counts counts_;
};

}  // namespace trifold
