// meet: connects ranks before their first messages.
//
// NCCL connects two ranks, in each direction, at their first message, and blocks the host until the other
// rank has reached it: ranks that reach their first exchanges in different orders can deadlock. Messages between
// connected ranks do not block the host, so their exchanges may complete in any order.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace trifold {

// Collective: sends an empty message to each rank in `to` and receives one from each rank in `from`. Each rank is
// listed once, and if rank a lists b in `to`, b must list a in `from`. Costs the memory of the connections, mainly
// NCCL's buffers: 9 MiB for each of its channels (up to 32) and each rank on this node in `from`.
void meet(Communicator& comm, std::span<const int> to, std::span<const int> from, Stream& stream);

}  // namespace trifold
