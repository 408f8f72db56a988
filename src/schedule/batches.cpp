#include "schedule/batches.h"

namespace trifold {

size_t batch_end(const RankPlan& row, size_t begin) {
  const bool forward = is_forward_message(row[begin].kind);
  int receives = 0;
  size_t end = begin;
  for (; end < row.size() && is_message(row[end].kind); ++end) {
    if (is_forward_message(row[end].kind) != forward) break;
    if (!is_send(row[end].kind) && ++receives > 1) break;
  }
  return end;
}

}  // namespace trifold
