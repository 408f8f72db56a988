// The grouping of messages into batches, a rule that the executor, check_plan and simulate share.
//
// Forward messages (SEND_F, RECV_F) have their own stream and communicator, and so have backward messages. On
// each stream, batches run in the order of the row. A batch is a run of adjacent messages of one direction in
// the row, with at most one receive: its messages are exchanged together, and it is done when all of them
// are. (With two receives in one batch, the first would wait for the second.) The k-th message that a rank
// sends to another in one direction is the k-th that the other receives from it in that direction.
#pragma once

#include "schedule/action.h"

namespace trifold {

inline bool is_forward_message(ActionKind kind) {
  return kind == ActionKind::SendF || kind == ActionKind::RecvF;
}

// The end (one past the last action) of the batch that begins at row[begin], which must be a message.
size_t batch_end(const RankPlan& row, size_t begin);

}  // namespace trifold
