// SequenceRows: the positions of each sequence that one context-parallel rank holds, as contiguous runs.
//
// Under a causal mask late positions see more keys than early ones, so each rank has a run from either end
// (zig-zag): a sequence of T positions is divided into 2n runs of equal length, and rank r of n holds runs r and
// 2n-1-r. Then all ranks have the same number of query-key pairs (Llama 3, arXiv 2407.21783, section 3.3.2).
// Without a causal mask one run per rank is balanced too: rank r holds run r of n.
// Rows are in the order of their positions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/error.h"

namespace trifold {

// Positions [begin, begin + count) of a sequence, which are rows [row, row + count) on this rank.
struct RowRun {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t row = 0;
  int64_t end() const { return begin + count; }
  bool operator==(const RowRun&) const = default;
};

// How a sequence is divided: each rank has a run from either end, or one run.
enum class RowCut { BothEnds, Consecutive };

class SequenceRows {
 public:
  SequenceRows() = default;
  // All positions.
  explicit SequenceRows(int64_t length)
      : length_(length), rows_(length), count_(1), runs_{{{0, length, 0}}} {}
  // The positions of rank `part` of `parts`; all of them if there is one. Throws if the runs would differ in
  // length.
  static SequenceRows cut(RowCut cut, int64_t length, int part, int parts) {
    return cut == RowCut::BothEnds ? zig_zag(length, part, parts) : consecutive(length, part, parts);
  }
  static SequenceRows zig_zag(int64_t length, int part, int parts) {
    if (parts == 1) return SequenceRows(length);
    check(length % (2 * parts) == 0,
          "a sequence of {} positions cannot be cut into {} equal runs, "
          "two for each of {} context-parallel ranks",
          length, 2 * parts, parts);
    const int64_t each = length / (2 * parts);
    SequenceRows rows;
    rows.length_ = length;
    rows.parts_ = parts;
    rows.rows_ = 2 * each;
    rows.count_ = 2;
    rows.runs_ = {{{part * each, each, 0}, {(2 * parts - 1 - part) * each, each, each}}};
    return rows;
  }
  static SequenceRows consecutive(int64_t length, int part, int parts) {
    if (parts == 1) return SequenceRows(length);
    check(length % parts == 0,
          "a sequence of {} positions cannot be cut into {} equal runs, one for each context-parallel rank",
          length, parts);
    const int64_t each = length / parts;
    SequenceRows rows(each);
    rows.length_ = length;
    rows.parts_ = parts;
    rows.runs_[0].begin = part * each;
    return rows;
  }

  // The positions of given runs, at most two, in the order of positions and of rows. of_part does not apply to them.
  static SequenceRows of_runs(int64_t length, std::span<const RowRun> runs) {
    SequenceRows rows;
    rows.length_ = length;
    for (const RowRun& run : runs) {
      rows.runs_[rows.count_++] = run;
      rows.rows_ += run.count;
    }
    return rows;
  }

  // The positions of another rank, for the same division.
  SequenceRows of_part(int part) const {
    return cut(count_ == 2 ? RowCut::BothEnds : RowCut::Consecutive, length_, part, parts_);
  }

  int64_t length() const { return length_; }  // length of the whole sequence
  int64_t rows() const { return rows_; }      // number of positions on this rank
  bool whole() const { return rows_ == length_; }
  std::span<const RowRun> runs() const { return {runs_.data(), count_}; }
  bool operator==(const SequenceRows&) const = default;

 private:
  int64_t length_ = 0;
  int64_t rows_ = 0;
  int parts_ = 1;
  uint32_t count_ = 0;  // number of runs
  std::array<RowRun, 2> runs_{};
};

}  // namespace trifold
