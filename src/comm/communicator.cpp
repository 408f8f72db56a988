#include "comm/communicator.h"

#include <utility>

#include "core/error.h"

namespace trifold {

void Communicator::set_nodes(std::vector<int> node_of_rank) {
  check(static_cast<int>(node_of_rank.size()) == size(),
        "{} nodes are named, but there are {} ranks: name one for each", node_of_rank.size(), size());
  world_->nodes = std::move(node_of_rank);
  nodes_ = world_->nodes;
}

void Communicator::join(const Communicator& parent, std::span<const int> world_ranks) {
  world_ = parent.world_;
  nodes_.clear();
  if (world_->nodes.empty()) return;
  for (int rank : world_ranks) nodes_.push_back(world_->nodes.at(static_cast<size_t>(rank)));
}

bool Communicator::leaves_node(int peer) const {
  return !nodes_.empty() && nodes_[static_cast<size_t>(peer)] != nodes_[static_cast<size_t>(rank())];
}

void Communicator::count_ring(int64_t rounds, size_t bytes, const Stream& stream) {
  count_sent(ring_bytes(rounds, bytes, size()), leaves_node((rank() + 1) % size()), stream);
}

void Communicator::count_transfers(std::span<const Transfer> transfers, const Stream& stream) {
  for (const Transfer& transfer : transfers)
    if (transfer.direction == Transfer::Direction::Send)
      count_sent(static_cast<int64_t>(transfer.tensor.bytes()), leaves_node(transfer.peer), stream);
}

void Communicator::count_rows(const Tensor& in, std::span<const int64_t> in_rows, const Stream& stream) {
  if (in.dim(0) == 0 || in_rows.size() != static_cast<size_t>(size())) return;
  const int64_t row_bytes = static_cast<int64_t>(in.bytes()) / in.dim(0);
  for (int r = 0; r < size(); ++r)
    if (r != rank()) count_sent(in_rows[static_cast<size_t>(r)] * row_bytes, leaves_node(r), stream);
}

void Communicator::count_sent(int64_t bytes, bool leaves, const Stream& stream) {
  if (stream.mode() == Stream::Mode::Dry) return;
  for (Counters* counters : {&mine_, &world_->counters}) {
    counters->sent.fetch_add(bytes, std::memory_order_relaxed);
    if (leaves) counters->left_node.fetch_add(bytes, std::memory_order_relaxed);
  }
}

}  // namespace trifold
