// meet: connects ranks before their first messages.
//
// NCCL connects two ranks, in each direction, at their first message, and blocks the host until the other
// rank has reached it: ranks that reach their first exchanges in different orders can deadlock. Ranks that
// have met no longer block the host, so their exchanges may complete in any order.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace trifold {

// Collective: one exchange of empty messages `to` these ranks and `from` those, each named once. If a rank
// names another, that one must name it too. The cost is that of the first messages, mainly NCCL's buffers:
// 9 MiB for each of its channels (up to 32) and each rank on this node that is received from.
void meet(Communicator& comm, std::span<const int> to, std::span<const int> from, Stream& stream);

}  // namespace trifold
