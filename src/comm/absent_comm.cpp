#include "comm/absent_comm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <tuple>

#include "comm/absent_values.h"
#include "comm/call.h"
#include "core/clock.h"
#include "core/random.h"

namespace trifold {

void AbsentCallCounts::add(const Work& call, int64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(list_.begin(), list_.end(), [&](const AbsentCalls& each) {
    return each.group == call.group && each.ranks == call.ranks && each.name == call.name;
  });
  if (known == list_.end()) {
    list_.push_back({call.group, call.name, call.ranks, 1, bytes, bytes, seconds});
    return;
  }
  ++known->count;
  known->bytes = std::max(known->bytes, bytes);
  known->all_bytes += bytes;
  known->seconds += seconds;
}

void AbsentCallCounts::restart() {
  const std::lock_guard lock(mutex_);
  list_.clear();
}

std::vector<AbsentCalls> AbsentCallCounts::list() const {
  const std::lock_guard lock(mutex_);
  return list_;
}

namespace {

// State that the communicators of the world share.
struct AbsentWorld {
  AbsentWorld(int world_size, const AbsentWorldOptions& chosen)
      : size(world_size),
        options(chosen),
        peers(chosen.peers != nullptr ? *chosen.peers : silent),
        on_device(chosen.ops != nullptr && chosen.ops->device != nullptr),
        values(chosen.seed, chosen.ops) {}

  const AbsentPeers silent;  // says what this rank says
  int size;
  AbsentWorldOptions options;
  const AbsentPeers& peers;
  bool on_device;
  AbsentValues values;
  std::mutex mutex;
  std::string aborted;  // why; empty: not
};

// A thread wakes up some tens of microseconds late, so the last part of a wait is spent looking at the clock.
void wait_until(Clock::time_point end) {
  constexpr auto kLate = std::chrono::microseconds(100);
  if (end - Clock::now() > kLate) std::this_thread::sleep_until(end - kLate);
  while (Clock::now() < end) {
  }
}

bool is_integer(DType dtype) {
  return dtype == DType::I64 || dtype == DType::I32 || dtype == DType::U16 || dtype == DType::U8;
}

template <class T>
void multiply(const Tensor& numbers, T factor) {
  T* values = numbers.as<T>();
  for (int64_t i = 0; i < numbers.elements(); ++i) values[i] *= factor;
}

int64_t sum_of(std::span<const int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

class AbsentCommunicator final : public Communicator {
 public:
  AbsentCommunicator(std::shared_ptr<AbsentWorld> world, std::vector<int> world_ranks, int rank,
                     unsigned group)
      : world_(std::move(world)),
        world_ranks_(std::move(world_ranks)),
        rank_(rank),
        group_(group),
        key_(philox_key(world_->options.seed, fmt::format("calls of {} over {} ranks", group, size()))) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  std::string_view backend() const override { return "absent"; }
  bool sums_in_rank_order() const override { return true; }
  bool enqueues() const override { return world_->on_device && !world_->options.waits; }

  void all_reduce(Tensor inout, Reduce reduction, Stream& stream) override;
  void reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) override;
  void all_gather(Tensor out, Tensor in, Stream& stream) override;
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override;
  void broadcast(Tensor inout, int root, Stream& stream) override;
  void exchange(std::span<const Transfer> transfers, Stream& stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Communicator> split_by(FunctionRef<SplitPlace(int rank)> place, unsigned group) override;
  void abort(std::string_view why) noexcept override;
  void barrier() override { const Recorded recorded(*this, CallKind::Barrier, 0); }

 private:
  using Rows = SmallList<int64_t, 8>;

  void check_call(const Call& call) const;
  void check_alive(const char* name) const;
  // Runs `body(stream)` on `stream` as the call `name` on `tensor`, of which this rank sends `sent` bytes in messages that
  // follow one another `hops` times.
  template <class Body>
  void enqueue(const char* name, int hops, const Tensor& tensor, int64_t sent, Stream& stream, Body body);
  template <class Body>
  void collective(const Call& call, int hops, const Tensor& tensor, int64_t sent, Stream& stream, Body body) {
    check_call(call);
    enqueue(name_of(call.kind).data(), hops, tensor, sent, stream,
            [this, kind = call.kind, sent, body = std::move(body)](Stream& on) {
              const Recorded recorded(*this, kind, sent);
              body(on);
            });
  }
  double planned_seconds(const Work& call);

  void add_peers(const Tensor& sum, Reduce reduction, Stream& stream) const;
  void gather_peers(const Tensor& out, const Tensor& in, Stream& stream) const;
  void receive_rows(const Tensor& out, const Tensor& in, const Rows& out_rows, const Rows& in_rows,
                    Stream& stream) const;
  void receive(std::span<const Transfer> transfers, uint64_t offset, Stream& stream) const;
  // A random number for the next call.
  uint64_t draw_offset() {
    const auto words = philox(key_, calls_++);
    return uint64_t{words[0]} << 32 | words[1];
  }
  bool in_host_memory(const Stream& stream) const { return stream.queue() == nullptr; }

  std::shared_ptr<AbsentWorld> world_;
  std::vector<int> world_ranks_;
  int rank_;
  unsigned group_;
  PhiloxKey key_;
  uint64_t calls_ = 0;
};

void AbsentCommunicator::check_call(const Call& call) const {
  if (call.problem == CallProblem::None) return;
  fail("{}", disagreement({&call, 1}, name_group(world_ranks_, world_->size),
                          std::span(world_ranks_).subspan(static_cast<size_t>(rank_), 1))
                 .value_or(to_string(call)));
}

double AbsentCommunicator::planned_seconds(const Work& call) {
  if (size() == 1) return 0;
  const double seconds = world_->peers.seconds(call);
  if (world_->options.counts != nullptr)
    world_->options.counts->add(call, static_cast<int64_t>(call.sent), seconds);
  return seconds;
}

void AbsentCommunicator::check_alive(const char* name) const {
  const std::lock_guard lock(world_->mutex);
  if (!world_->aborted.empty())
    throw Error(fmt::format("{} in a world that was aborted: {}", name, world_->aborted), ErrorKind::Aborted);
}

template <class Body>
void AbsentCommunicator::enqueue(const char* name, int hops, const Tensor& tensor, int64_t sent,
                                 Stream& stream, Body body) {
  if (stream.mode() == Stream::Mode::Dry) return;
  check_alive(name);
  Work call;
  call.name = name;
  call.kind = Work::Kind::Collective;
  call.dtype = tensor.dtype;
  call.result = tensor.shape;
  call.ranks = size();
  call.group = group_;
  call.sent = static_cast<double>(sent);
  call.hops = hops;
  const double planned = planned_seconds(call);
  if (enqueues())
    return stream.enqueue([&stream, body = std::move(body)] {
      Stream inner = stream.inner();
      body(inner);
    });
  const double waited = world_->options.waits ? planned : 0;
  stream.run([&stream, waited, body = std::move(body)] {
    const auto start = Clock::now();
    Stream inner = stream.inner();
    body(inner);
    inner.synchronize();
    if (waited > 0)
      wait_until(start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(waited)));
  });
}

// inout = the sum over all ranks of what is this rank's part in it.
void AbsentCommunicator::add_peers(const Tensor& sum, Reduce reduction, Stream& stream) const {
  if (reduction != Reduce::Sum || sum.elements() == 0) return;
  const bool is_control = in_host_memory(stream) && (is_integer(sum.dtype) || sum.dtype == DType::F64);
  if (is_control && sum.dtype == DType::F64 && world_->peers.sum(group_, size(), sum)) return;
  if (size() == 1) return;
  if (!is_control) {
    if (!is_integer(sum.dtype)) world_->values.scale(stream, sum, std::sqrt(static_cast<double>(size())));
    return;
  }
  if (sum.dtype == DType::I64) return multiply<int64_t>(sum, size());
  if (sum.dtype == DType::I32) return multiply<int32_t>(sum, size());
  multiply<double>(sum, size());
}

void AbsentCommunicator::all_reduce(Tensor inout, Reduce reduction, Stream& stream) {
  const int64_t sent = count_ring(2, inout.bytes(), stream);
  collective(all_reduce_call(inout, reduction), 2 * (size() - 1), inout, sent, stream,
             [=, this](Stream& on) { add_peers(inout, reduction, on); });
}

void AbsentCommunicator::reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) {
  const int64_t sent = count_ring(1, in.bytes(), stream);
  collective(reduce_scatter_call(out, in, reduction, size()), size() - 1, in, sent, stream,
             [=, this](Stream& on) {
               const Tensor mine = in.flat(rank_ * out.elements(), (rank_ + 1) * out.elements());
               AbsentValues::copy(on, out.data, mine.data, out.bytes());
               add_peers(out, reduction, on);
             });
}

void AbsentCommunicator::gather_peers(const Tensor& out, const Tensor& in, Stream& stream) const {
  const int64_t part = in.elements();
  const Tensor mine = out.flat(rank_ * part, (rank_ + 1) * part);
  const bool in_place = mine.data == in.data;
  AbsentValues::copy(stream, mine.data, in.data, in.bytes());
  if (size() == 1 || (in_place && world_->peers.keeps(out))) return;
  const Tensor shown{in_host_memory(stream) ? in.data : nullptr, in.dtype, in.shape};
  const Tensor said = is_integer(in.dtype) ? world_->peers.gathered(group_, size(), shown) : Tensor{};
  check(said.rank() == 0 || said.elements() == out.elements(), "absent ranks say {} numbers, not {}",
        said.elements(), out.elements());
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    const Tensor to = out.flat(rank * part, (rank + 1) * part);
    if (said.rank() > 0)
      AbsentValues::copy(stream, to.data, said.flat(rank * part, (rank + 1) * part).data, to.bytes());
    else if (in.dtype == DType::U8 && world_->peers.zeros(out))
      world_->values.draw(stream, to, AbsentScale::Unit, 0);
    else
      world_->values.repeat(stream, to, mine);
  }
}

void AbsentCommunicator::all_gather(Tensor out, Tensor in, Stream& stream) {
  const int64_t sent = count_ring(1, out.bytes(), stream);
  collective(all_gather_call(out, in, size()), size() - 1, out, sent, stream,
             [=, this](Stream& on) { gather_peers(out, in, on); });
}

void AbsentCommunicator::receive_rows(const Tensor& out, const Tensor& in, const Rows& out_rows,
                                      const Rows& in_rows, Stream& stream) const {
  const bool says =
      is_integer(in.dtype) && in_host_memory(stream) && world_->peers.rows(group_, out, out_rows);
  int64_t out_row = 0, in_row = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    const Tensor to = out.rows(out_row, out_row + out_rows[index]);
    const Tensor sent = in.rows(in_row, in_row + in_rows[index]);
    out_row += out_rows[index];
    in_row += in_rows[index];
    if (rank == rank_)
      AbsentValues::copy(stream, to.data, sent.data, std::min(to.bytes(), sent.bytes()));
    else if (!is_integer(in.dtype) || !says)
      world_->values.repeat(stream, to, sent.elements() > 0 || is_integer(in.dtype) ? sent : in);
  }
}

void AbsentCommunicator::all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows,
                                    std::span<const int64_t> in_rows, Stream& stream) {
  const int64_t sent = count_rows(in, in_rows, stream);
  collective(all_to_all_call(out, in, out_rows, in_rows, size()), size() - 1, in, sent, stream,
             [=, this, out_counts = Rows(out_rows), in_counts = Rows(in_rows)](Stream& on) {
               if (sum_of(out_counts) > 0) receive_rows(out, in, out_counts, in_counts, on);
             });
}

// The root says what this rank has.
void AbsentCommunicator::broadcast(Tensor inout, int root, Stream& stream) {
  const int64_t sent = count_ring(1, inout.bytes(), stream);
  collective(broadcast_call(inout, root, size()), size() - 1, inout, sent, stream, [](Stream&) {});
}

// Floats arrive as what this rank sends at the same time, as in a ring, or else drawn; messages to itself as they are.
void AbsentCommunicator::receive(std::span<const Transfer> transfers, uint64_t offset, Stream& stream) const {
  size_t own = 0;  // messages to itself that have arrived
  for (const Transfer& transfer : transfers) {
    if (transfer.direction != Transfer::Direction::Receive) continue;
    const Tensor& to = transfer.tensor;
    size_t seen = 0;
    const Transfer* like = nullptr;
    for (const Transfer& other : transfers) {
      if (other.direction != Transfer::Direction::Send || other.tensor.dtype != to.dtype) continue;
      const bool to_itself = transfer.peer == rank_ && other.peer == rank_;
      if (to_itself ? seen++ == own : transfer.peer != rank_ && like == nullptr) like = &other;
    }
    if (transfer.peer == rank_) {
      ++own;
      if (like != nullptr) AbsentValues::copy(stream, to.data, like->tensor.data, to.bytes());
    } else if (like != nullptr && !is_integer(to.dtype)) {
      world_->values.repeat(stream, to, like->tensor);
    } else {
      world_->values.draw(stream, to,
                          (group_ & kGradientsGroup) != 0 ? AbsentScale::Small : AbsentScale::Unit, offset);
    }
  }
}

void AbsentCommunicator::exchange(std::span<const Transfer> transfers, Stream& stream) {
  count_transfers(transfers, stream);
  int64_t sent = 0;
  Tensor first{nullptr, DType::U8, {0}};
  for (const Transfer& transfer : transfers) {
    check(transfer.peer >= 0 && transfer.peer < size(), "a message to or from rank {} of {}", transfer.peer,
          size());
    if (first.elements() == 0) first = transfer.tensor;
    if (transfer.direction == Transfer::Direction::Send)
      sent += static_cast<int64_t>(transfer.tensor.bytes());
  }
  using Batch = SmallList<Transfer, 4>;
  enqueue("exchange", 1, first, sent, stream,
          [this, batch = Batch(transfers), offset = draw_offset()](Stream& on) {
            Recorded recorded(*this);
            for (const Transfer& transfer : std::span<const Transfer>(batch))
              recorded.add_message(transfer.direction, transfer.peer,
                                   world_ranks_[static_cast<size_t>(transfer.peer)], transfer.tensor.bytes());
            receive(batch, offset, on);
          });
}

std::unique_ptr<Communicator> AbsentCommunicator::split(int, int) {
  fail("split: the colors of ranks that do not exist are unknown; split_by names them");
}

std::unique_ptr<Communicator> AbsentCommunicator::split_by(FunctionRef<SplitPlace(int rank)> place,
                                                           unsigned group) {
  const Recorded recorded(*this, CallKind::Split, 0);
  const int color = place(rank_).color;
  std::vector<std::tuple<int, int>> members;  // (key, rank)
  for (int rank = 0; rank < size(); ++rank)
    if (const SplitPlace there = place(rank); there.color == color) members.emplace_back(there.key, rank);
  std::sort(members.begin(), members.end());
  std::vector<int> world_ranks;
  int mine = 0;
  for (const auto& [key, rank] : members) {
    if (rank == rank_) mine = static_cast<int>(world_ranks.size());
    world_ranks.push_back(world_ranks_[static_cast<size_t>(rank)]);
  }
  auto child = std::make_unique<AbsentCommunicator>(world_, world_ranks, mine, group);
  child->join(*this, world_ranks);
  return child;
}

void AbsentCommunicator::abort(std::string_view why) noexcept {
  const std::lock_guard lock(world_->mutex);
  if (world_->aborted.empty()) world_->aborted = why.empty() ? "no reason" : why;
}

}  // namespace

std::unique_ptr<Communicator> absent_world(int rank, int size, const AbsentWorldOptions& options) {
  check(rank >= 0 && rank < size, "there is no rank {} in a world of {}", rank, size);
  std::vector<int> world_ranks(static_cast<size_t>(size));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  return std::make_unique<AbsentCommunicator>(std::make_shared<AbsentWorld>(size, options),
                                              std::move(world_ranks), rank, 0U);
}

}  // namespace trifold
