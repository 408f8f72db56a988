#include "comm/communicator.h"

#include <numeric>
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
  enter_recorder(world_ranks);
  nodes_.clear();
  if (world_->nodes.empty()) return;
  for (int rank : world_ranks) nodes_.push_back(world_->nodes.at(static_cast<size_t>(rank)));
}

void Communicator::record_in(std::shared_ptr<FlightRecorder> recorder) {
  world_->recorder = std::move(recorder);
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  enter_recorder(all);
}

void Communicator::stop_recording() {
  group_ = -1;
  messages_.clear();
}

void Communicator::enter_recorder(std::span<const int> world_ranks) {
  if (world_->recorder == nullptr) return;
  group_ = world_->recorder->add_group(world_ranks);
  if (group_ >= 0) messages_.assign(world_ranks.size(), {});
}

Communicator::Recorded::Recorded(Communicator& comm, CallKind kind, int64_t bytes) : comm_(comm) {
  const int64_t number = comm.recorded_calls_++;
  if (comm.group_ < 0) return;
  FlightEvent event;
  event.kind = FlightEvent::Kind::Collective;
  event.set_name(name_of(kind));
  event.group = comm.group_;
  event.number = number;
  event.bytes = bytes;
  tickets_.push_back(comm.recorder()->begin(event));
}

void Communicator::Recorded::add_message(Transfer::Direction direction, int peer, int world_peer,
                                         size_t bytes) {
  if (comm_.messages_.empty()) return;
  const bool sends = direction == Transfer::Direction::Send;
  Messages& messages = comm_.messages_[static_cast<size_t>(peer)];
  FlightEvent event;
  event.kind = sends ? FlightEvent::Kind::Send : FlightEvent::Kind::Receive;
  event.set_name(sends ? "send" : "receive");
  event.group = comm_.group_;
  event.peer = world_peer;
  event.number = sends ? messages.sent++ : messages.received++;
  event.bytes = sends ? static_cast<int64_t>(bytes) : 0;
  tickets_.push_back(comm_.recorder()->begin(event));
}

Communicator::Recorded::~Recorded() {
  if (std::uncaught_exceptions() != exceptions_) return;
  for (const uint64_t ticket : tickets_) comm_.recorder()->end(ticket);
}

bool Communicator::leaves_node(int peer) const {
  return !nodes_.empty() && nodes_[static_cast<size_t>(peer)] != nodes_[static_cast<size_t>(rank())];
}

int64_t Communicator::count_ring(int64_t rounds, size_t bytes, const Stream& stream) {
  const int64_t sent = ring_bytes(rounds, bytes, size());
  count_sent(sent, leaves_node((rank() + 1) % size()), stream);
  return sent;
}

void Communicator::count_transfers(std::span<const Transfer> transfers, const Stream& stream) {
  for (const Transfer& transfer : transfers)
    if (transfer.direction == Transfer::Direction::Send)
      count_sent(static_cast<int64_t>(transfer.tensor.bytes()), leaves_node(transfer.peer), stream);
}

int64_t Communicator::count_rows(const Tensor& in, std::span<const int64_t> in_rows, const Stream& stream) {
  if (in.dim(0) == 0 || in_rows.size() != static_cast<size_t>(size())) return 0;
  const int64_t row_bytes = static_cast<int64_t>(in.bytes()) / in.dim(0);
  int64_t sent = 0;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const int64_t bytes = in_rows[static_cast<size_t>(r)] * row_bytes;
    count_sent(bytes, leaves_node(r), stream);
    sent += bytes;
  }
  return sent;
}

void Communicator::count_sent(int64_t bytes, bool leaves, const Stream& stream) {
  if (stream.mode() == Stream::Mode::Dry) return;
  for (Counters* counters : {&mine_, &world_->counters}) {
    counters->sent.fetch_add(bytes, std::memory_order_relaxed);
    if (leaves) counters->left_node.fetch_add(bytes, std::memory_order_relaxed);
  }
}

}  // namespace trifold
