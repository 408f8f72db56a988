// meet: ranks get to know each other before their first messages.
//
// NCCL connects two ranks, in each direction, at their first message, and the host waits for the other rank
// meanwhile: ranks that come to their first exchanges in an order of their own can wait for each other for
// ever. Ranks that have met wait on the host no more, so their exchanges may complete in any order.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace trifold {

// Collective: one exchange of empty messages `to` these ranks and `from` those, each named once; whom a rank
// names has to name it. It costs no more than the first messages would have, chiefly NCCL's buffers: of 9 MiB
// for each of its channels (up to 32) and each rank on this node that is received from.
void meet(Communicator& comm, std::span<const int> to, std::span<const int> from, Stream& stream);

}  // namespace trifold
