#include "comm/cuda/nccl_comm.h"

#include <numeric>
#include <utility>

#include "comm/call.h"
#include "comm/cuda/nccl_world.cuh"

namespace trifold::cuda {

namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return ncclFloat64;
    case DType::F32:
      return ncclFloat32;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F16:
      return ncclFloat16;
    case DType::I64:
      return ncclInt64;
    case DType::I32:
      return ncclInt32;
    case DType::U16:
    case DType::U8:
      return ncclUint8;  // moved, never summed
  }
  return ncclUint8;
}

// The number of a tensor's elements, in units of type_of.
size_t count_of(const Tensor& tensor) {
  return tensor.dtype == DType::U16 ? tensor.bytes() : static_cast<size_t>(tensor.elements());
}

ncclRedOp_t operation(Reduce reduction) { return reduction == Reduce::Sum ? ncclSum : ncclMax; }

bool on_host(const Stream& stream) { return stream.queue() == nullptr && stream.mode() != Stream::Mode::Dry; }

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclWorld> world, Communicator& host, std::unique_ptr<Communicator> owned,
                   SharedHandle handle, std::vector<int> ranks_of_world)
      : world_(std::move(world)),
        owned_(std::move(owned)),
        host_(host),
        handle_(std::move(handle)),
        ranks_of_world_(std::move(ranks_of_world)) {}
  ~NcclCommunicator() override { world_->forget(handle_); }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string_view backend() const override { return "nccl"; }
  bool sums_in_rank_order() const override { return false; }
  bool enqueues() const override { return true; }

  void all_reduce(Tensor inout, Reduce reduction, Stream& stream) override;
  void reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) override;
  void all_gather(Tensor out, Tensor in, Stream& stream) override;
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override;
  void broadcast(Tensor inout, int root, Stream& stream) override;
  void exchange(std::span<const Transfer> transfers, Stream& stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(std::string_view why) noexcept override { world_->abort(why); }
  void barrier() override { host_.barrier(); }
  std::string status() override { return host_.status(); }
  void record_in(std::shared_ptr<FlightRecorder> recorder) override {
    host_.record_in(recorder);
    world_->record_in(recorder);
    Communicator::record_in(std::move(recorder));
  }

 private:
  int in_world(int rank) const { return ranks_of_world_[static_cast<size_t>(rank)]; }
  std::string describe(std::span<const Transfer> transfers) const;
  // Throws if the arguments are wrong.
  void refuse_problem(const Call& call) const {
    const int me = in_world(rank());
    if (const auto problem = disagreement({&call, 1}, handle_->group, {&me, 1})) throw Error(*problem);
  }
  // Enqueues body(ncclComm_t, cudaStream_t) on the stream if the arguments are right. `sent`: the bytes that this rank
  // sends.
  template <class Body>
  void enqueue(Call call, int64_t sent, Stream& stream, Body body) {
    if (stream.mode() == Stream::Mode::Dry) return;
    call.number = calls_++;
    refuse_problem(call);
    put(to_string(call), stream, body,
        [this, kind = call.kind, sent] { return Recorded(*this, kind, sent).release(); });
  }
  // `begin_events` records the beginning of the call and returns its tickets.
  template <class Body, class BeginEvents>
  void put(std::string what, Stream& stream, Body body, BeginEvents begin_events) {
    stream.enqueue([world = world_.get(), handle = handle_, queue = stream.queue(), what = std::move(what),
                    body = std::move(body), begin_events = std::move(begin_events)] {
      auto* on = static_cast<cudaStream_t>(queue->native());
      NcclWorld::Tickets tickets = begin_events();
      world->enqueue(
          handle, on, what, [&](ncclComm_t communicator) { return body(communicator, on); },
          std::move(tickets));
    });
  }
  // Records a collective of this kind that sends `sent` bytes, or else the transfers.
  void put_transfers(std::string what, std::vector<Transfer> transfers, Stream& stream,
                     std::optional<CallKind> kind = {}, int64_t sent = 0);

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Communicator> owned_;  // the host communicator, if this communicator was split from another
  Communicator& host_;
  SharedHandle handle_;
  std::vector<int> ranks_of_world_;  // by rank here
  uint64_t calls_ = 0;               // collective calls on streams of the device
};

void NcclCommunicator::all_reduce(Tensor inout, Reduce reduction, Stream& stream) {
  if (on_host(stream)) return host_.all_reduce(inout, reduction, stream);
  const int64_t sent = count_ring(2, inout.bytes(), stream);
  enqueue(all_reduce_call(inout, reduction), sent, stream, [=](ncclComm_t communicator, cudaStream_t on) {
    return nccl().all_reduce(inout.data, inout.data, count_of(inout), type_of(inout.dtype),
                             operation(reduction), communicator, on);
  });
}

void NcclCommunicator::reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) {
  if (on_host(stream)) return host_.reduce_scatter(out, in, reduction, stream);
  const int64_t sent = count_ring(1, in.bytes(), stream);
  enqueue(reduce_scatter_call(out, in, reduction, size()), sent, stream,
          [=](ncclComm_t communicator, cudaStream_t on) {
            return nccl().reduce_scatter(in.data, out.data, count_of(out), type_of(out.dtype),
                                         operation(reduction), communicator, on);
          });
}

void NcclCommunicator::all_gather(Tensor out, Tensor in, Stream& stream) {
  if (on_host(stream)) return host_.all_gather(out, in, stream);
  const int64_t sent = count_ring(1, out.bytes(), stream);
  enqueue(all_gather_call(out, in, size()), sent, stream, [=](ncclComm_t communicator, cudaStream_t on) {
    return nccl().all_gather(in.data, out.data, count_of(in), type_of(in.dtype), communicator, on);
  });
}

void NcclCommunicator::broadcast(Tensor inout, int root, Stream& stream) {
  if (on_host(stream)) return host_.broadcast(inout, root, stream);
  const int64_t sent = count_ring(1, inout.bytes(), stream);
  enqueue(broadcast_call(inout, root, size()), sent, stream, [=](ncclComm_t communicator, cudaStream_t on) {
    return nccl().broadcast(inout.data, inout.data, count_of(inout), type_of(inout.dtype), root, communicator,
                            on);
  });
}

// One NCCL group: NCCL starts all of them together, so no order among ranks can make them deadlock.
void NcclCommunicator::put_transfers(std::string what, std::vector<Transfer> transfers, Stream& stream,
                                     std::optional<CallKind> kind, int64_t sent) {
  auto list = std::make_shared<const std::vector<Transfer>>(std::move(transfers));
  const auto begin_events = [this, list, kind, sent] {
    if (kind) return Recorded(*this, *kind, sent).release();
    Recorded recorded(*this);
    for (const Transfer& transfer : *list)
      recorded.add_message(transfer.direction, transfer.peer, in_world(transfer.peer),
                           transfer.tensor.bytes());
    return recorded.release();
  };
  const auto body = [list](ncclComm_t communicator, cudaStream_t on) {
    ncclResult_t result = nccl().group_start();
    for (const Transfer& transfer : *list) {
      if (result != ncclSuccess && result != ncclInProgress) break;
      const Tensor& tensor = transfer.tensor;
      result = transfer.direction == Transfer::Direction::Send
                   ? nccl().send(tensor.data, count_of(tensor), type_of(tensor.dtype), transfer.peer,
                                 communicator, on)
                   : nccl().receive(tensor.data, count_of(tensor), type_of(tensor.dtype), transfer.peer,
                                    communicator, on);
    }
    const ncclResult_t ended = nccl().group_end();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  };
  put(std::move(what), stream, body, begin_events);
}

void NcclCommunicator::all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows,
                                  std::span<const int64_t> in_rows, Stream& stream) {
  if (on_host(stream)) return host_.all_to_all(out, in, out_rows, in_rows, stream);
  const int64_t sent = count_rows(in, in_rows, stream);
  if (stream.mode() == Stream::Mode::Dry) return;
  Call call = all_to_all_call(out, in, out_rows, in_rows, size());
  call.number = calls_++;
  refuse_problem(call);
  std::vector<Transfer> transfers;
  int64_t first_sent = 0;
  int64_t received = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t to = in_rows[static_cast<size_t>(peer)];
    const int64_t from = out_rows[static_cast<size_t>(peer)];
    if (to > 0) transfers.push_back({Transfer::Direction::Send, peer, in.rows(first_sent, first_sent + to)});
    if (from > 0)
      transfers.push_back({Transfer::Direction::Receive, peer, out.rows(received, received + from)});
    first_sent += to;
    received += from;
  }
  put_transfers(to_string(call), std::move(transfers), stream, call.kind, sent);
}

// "exchange of 4 f32 from rank 1, and 2 more", with world ranks.
std::string NcclCommunicator::describe(std::span<const Transfer> transfers) const {
  if (transfers.empty()) return "exchange of nothing";
  const Transfer& first = transfers.front();
  return fmt::format("exchange of {} {} {} rank {}{}", first.tensor.elements(), name_of(first.tensor.dtype),
                     first.direction == Transfer::Direction::Send ? "to" : "from", in_world(first.peer),
                     transfers.size() == 1 ? "" : fmt::format(", and {} more", transfers.size() - 1));
}

void NcclCommunicator::exchange(std::span<const Transfer> transfers, Stream& stream) {
  if (on_host(stream)) return host_.exchange(transfers, stream);
  count_transfers(transfers, stream);
  if (stream.mode() == Stream::Mode::Dry) return;
  for (const Transfer& transfer : transfers)
    check(transfer.peer >= 0 && transfer.peer < size(), "exchange names rank {}, but there are {} ranks",
          transfer.peer, size());
  put_transfers(describe(transfers), std::vector<Transfer>(transfers.begin(), transfers.end()), stream);
}

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// NCCL takes no negative colors; the other back ends do.
std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  check(color >= 0, "NCCL needs a color of at least 0, not {}", color);
  std::unique_ptr<Communicator> host = host_.split(color, key);
  std::vector<int64_t> members(static_cast<size_t>(host->size()));
  int64_t mine = host_.rank();
  ThreadPool pool(1);
  Stream inline_stream(Stream::Mode::Inline, pool);
  host->all_gather({members.data(), DType::I64, {host->size()}}, {&mine, DType::I64, {1}}, inline_stream);
  std::vector<int> ranks;
  for (const int64_t member : members) ranks.push_back(in_world(static_cast<int>(member)));
  SharedHandle made =
      world_->make("a split", name_group(ranks, world_->size()), handle_.get(), [&](ncclComm_t* child) {
        ncclConfig_t config = configuration();
        return nccl().split(handle_->nccl, color, key, child, &config);
      });
  Communicator& kept = *host;
  auto child =
      std::make_unique<NcclCommunicator>(world_, kept, std::move(host), std::move(made), std::move(ranks));
  child->join(*this, child->ranks_of_world_);
  return child;
}

}  // namespace

std::unique_ptr<Communicator> connect_nccl(Communicator& host, CudaDevice& device,
                                           std::chrono::milliseconds timeout) {
  ncclUniqueId id{};
  if (host.rank() == 0) {
    const ncclResult_t result = nccl().unique_id(&id);
    check(result == ncclSuccess, "NCCL could not begin: {} ({})", nccl().text(result),
          nccl().last_error(nullptr));
  }
  ThreadPool pool(1);
  Stream inline_stream(Stream::Mode::Inline, pool);
  host.broadcast({&id, DType::U8, {static_cast<int64_t>(sizeof id)}}, 0, inline_stream);
  device.use();
  auto world = std::make_shared<NcclWorld>(host, nccl(), cuda_marks(device), timeout);
  std::vector<int> ranks(static_cast<size_t>(host.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  SharedHandle handle =
      world->make("connecting the ranks", name_group(ranks, host.size()), nullptr, [&](ncclComm_t* made) {
        ncclConfig_t config = configuration();
        return nccl().init(made, host.size(), id, host.rank(), &config);
      });
  return std::make_unique<NcclCommunicator>(std::move(world), host, nullptr, std::move(handle),
                                            std::move(ranks));
}

}  // namespace trifold::cuda
