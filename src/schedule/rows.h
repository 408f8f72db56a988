// Helpers with which the generators of schedules write a rank's row, and the generators in other files; internal.
#pragma once

#include <utility>

#include "schedule/schedules.h"

namespace trifold {

// The rank for which a row is made.
struct Row {
  Schedule schedule;
  int ranks;
  int rank;
  int micros;
};

// Appends actions of the rank's chunks to its row.
class RowWriter {
 public:
  explicit RowWriter(const Row& row) : row_(row) {}

  void add(ActionKind kind, int chunk, int micro, int version = 0) {
    const int stage = stage_of(row_.schedule, row_.ranks, chunk, row_.rank);
    actions_.push_back({kind, stage, Action::kAll, micro, version});
  }
  // Marks the last two actions as one overlapped pair.
  void overlap_last_two() { actions_[actions_.size() - 2].overlaps_next = true; }
  RankPlan take() { return std::move(actions_); }

 private:
  const Row row_;
  RankPlan actions_;
};

// zb-h1 and zb-h2: `warm_up` forwards, then F, I and W, where W lags `delay` micro-batches behind I.
RankPlan zero_bubble_row(const Row& row, int warm_up, int delay);
RankPlan zb_v_row(const Row& row);
RankPlan dualpipe_v_row(const Row& row);

}  // namespace trifold
