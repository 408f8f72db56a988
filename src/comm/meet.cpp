#include "comm/meet.h"

namespace trifold {

void meet(Communicator& comm, std::span<const int> to, std::span<const int> from, Stream& stream) {
  const Tensor empty{nullptr, DType::U8, {0}};
  std::vector<Transfer> transfers;
  for (int peer : to) transfers.push_back({Transfer::Direction::Send, peer, empty});
  for (int peer : from) transfers.push_back({Transfer::Direction::Receive, peer, empty});
  comm.exchange(transfers, stream);
}

}  // namespace trifold
