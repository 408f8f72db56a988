// Communicator::exchange over MPI.
//
// For every transfer both sides send each other a header with their count and dtype, and move data only if
// the two agree: a mismatch is an Error on both sides and leaves no message behind. Headers match in order
// per pair and direction, because senders and receivers use one tag each; data is posted in the same order.
#include "comm/call.h"
#include "comm/mpi/mpi_comm.h"

namespace trifold {

namespace {

struct Header {
  int64_t count = 0;
  int64_t dtype = 0;
};

}  // namespace

struct MpiCommunicator::Item {
  enum class State { Header, Data, Done };

  Transfer transfer;
  State state = State::Header;
  Header mine;
  Header theirs;
  MpiRequests headers;
  MpiRequests data;
  std::string problem;

  bool sends() const { return transfer.direction == Transfer::Direction::Send; }
  bool same_queue(const Item& other) const {
    return sends() == other.sends() && transfer.peer == other.transfer.peer;
  }
};

// Advances every transfer as far as possible, in any order between queues; true when all are done.
bool MpiCommunicator::advance(std::vector<Item>& items) {
  bool all_done = true;
  for (size_t i = 0; i < items.size(); ++i) {
    Item& item = items[i];
    bool first = true;  // no earlier transfer of its queue is still waiting for its header
    for (size_t j = 0; j < i && first; ++j)
      first = !(items[j].state == Item::State::Header && items[j].same_queue(item));
    if (item.state == Item::State::Header && first && world_.test(item.headers)) {
      const Tensor& tensor = item.transfer.tensor;
      const int peer = world_rank(item.transfer.peer);
      item.state = Item::State::Data;
      if (item.mine.count != item.theirs.count || item.mine.dtype != item.theirs.dtype) {
        const Tensor theirs{nullptr, static_cast<DType>(item.theirs.dtype), {item.theirs.count}};
        item.problem = item.sends() ? transfer_disagreement(name_, world_.rank(), tensor, peer, theirs)
                                    : transfer_disagreement(name_, peer, theirs, world_.rank(), tensor);
      } else if (item.sends()) {
        world_.send(item.data, tensor.data, tensor.bytes(), peer, context_, MpiTag::Data);
      } else {
        world_.receive(item.data, tensor.data, tensor.bytes(), peer, context_, MpiTag::Data);
      }
    }
    if (item.state == Item::State::Data && world_.test(item.data)) item.state = Item::State::Done;
    all_done = all_done && item.state == Item::State::Done;
  }
  return all_done;
}

std::string MpiCommunicator::pending(const std::vector<Item>& items) const {
  std::string text = "exchange in " + name_;
  for (const Item& item : items) {
    if (item.state != Item::State::Done)
      text +=
          fmt::format(", for rank {} to {} {} {}", world_rank(item.transfer.peer),
                      item.sends() ? "take" : "send", item.mine.count, name_of(item.transfer.tensor.dtype));
    if (!item.problem.empty()) text += " (" + item.problem + ")";
  }
  return text;
}

void MpiCommunicator::exchange(std::span<const Transfer> transfers, Stream& stream) {
  count_transfers(transfers, stream);
  stream.run([this, batch = std::vector<Transfer>(transfers.begin(), transfers.end())] {
    world_.throw_if_broken();
    Recorded recorded(*this);
    auto items = std::make_unique<std::vector<Item>>(batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      Item& item = (*items)[i];
      item.transfer = batch[i];
      check(batch[i].peer >= 0 && batch[i].peer < size(), "exchange names rank {}, which is not in {}",
            batch[i].peer, name_);
      recorded.add_message(batch[i].direction, batch[i].peer, world_rank(batch[i].peer),
                           batch[i].tensor.bytes());
      item.mine = {batch[i].tensor.elements(), static_cast<int64_t>(batch[i].tensor.dtype)};
    }
    {
      const auto held = world_.lock();
      world_.note({}, group_, true);
      for (Item& item : *items) {
        const int peer = world_rank(item.transfer.peer);
        const MpiTag mine = item.sends() ? MpiTag::SendHeader : MpiTag::ReceiveHeader;
        const MpiTag theirs = item.sends() ? MpiTag::ReceiveHeader : MpiTag::SendHeader;
        world_.receive(item.headers, &item.theirs, sizeof(Header), peer, context_, theirs);
        world_.send(item.headers, &item.mine, sizeof(Header), peer, context_, mine);
      }
    }
    try {
      world_.await([&] { return advance(*items); }, [&] { return pending(*items); });
    } catch (...) {
      const auto held = world_.lock();
      for (Item& item : *items) {
        world_.cancel(item.headers);
        world_.cancel(item.data);
      }
      items.release();  // NOLINT: sends of headers may still be pending
      throw;
    }
    for (const Item& item : *items)
      if (!item.problem.empty()) throw Error(item.problem);
  });
}

}  // namespace trifold
