// order_problems: whether the recorded order of calls (record.h) can deadlock, and whether ranks contradict each other.
//
// The record is of one run, in which nothing had to wait for a receiver. NCCL promises less, so the check assumes of it
// only this:
//   * A call runs on its stream, after all that was enqueued there before, and after the earlier calls of its rank on the
//     same communicator, on whatever stream.
//   * It is done when all ranks of a collective, or the peers of all its messages, have begun theirs: a send is a
//     rendezvous.
//   * The first collective of a communicator, and the first message from one rank to another over it, block the calling
//     thread until the others have reached theirs (comm/communicator.h); so does every call of the host's communicators,
//     and making a communicator.
//   * Calls on different streams of a device run at the same time.
//   * Freeing memory of a device waits for all its streams.
// All of these are orders between two events. If they have no cycle, the calls end however fast each rank is; if they
// have one, some calls wait for each other for ever. The record does not show, so the check ignores, that a thread of the
// host waits for another of its rank, such as the one that reads the next batch.
#pragma once

#include <string>
#include <vector>

#include "nccl_order/record.h"

namespace trifold::test {

// Which collectives block the calling thread: the first of a communicator, or every one, as if each size took another
// algorithm of NCCL's, which connects ranks when it is first used.
enum class Blocking { FirstCall, EveryCollective };

// A text for each problem: calls of a communicator that differ between its ranks, sends and receives that do not match,
// and one cycle, if there are any. Empty: no problem.
std::vector<std::string> order_problems(const OrderRecord& record, Blocking blocking = Blocking::FirstCall);

}  // namespace trifold::test
