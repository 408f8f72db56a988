// How messages travel: the one rule that the executor, check_plan and simulate share.
//
// Forward messages (SEND_F, RECV_F) have a stream and a communicator of their own, backward messages another.
// On each stream batches run in the order of the row. A batch is a run of neighbours in the row, all of one
// direction, with at most one receive among them: its messages are exchanged together and it is done when all
// of them are. (Two receives in one batch would make the first wait for the second.) The k-th message that a
// rank sends to another in one direction is the k-th that the other receives from it in that direction.
#pragma once

#include "schedule/action.h"

namespace trifold {

inline bool is_forward_message(ActionKind kind) {
  return kind == ActionKind::SendF || kind == ActionKind::RecvF;
}

// One past the last action of the batch that begins at row[begin], which must be a message.
size_t batch_end(const RankPlan& row, size_t begin);

}  // namespace trifold
