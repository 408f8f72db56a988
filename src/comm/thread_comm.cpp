#include "comm/thread_comm.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "comm/thread_group.h"
#include "core/small_list.h"

namespace trifold {

namespace {

// A reduction processes the ranks' tensors in blocks of this size per core, so that the running sum stays in
// cache.
constexpr int64_t kBlockBytes = 128 << 10;
constexpr int64_t kDeviceBlockBytes = 64 << 20;  // on a device, where it only bounds the temporary memory
constexpr int64_t kCopyGrain = 256 << 10;        // bytes worth waking another core for

constexpr auto kNothingToInspect = [] { return std::string(); };

// Copies on the stream's device, or immediately on the stream's cores.
void copy_bytes(Stream& stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (stream.queue() != nullptr) return stream.queue()->copy(to, from, bytes);
  stream.pool().parallel_for(static_cast<int64_t>(bytes), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

ThreadTransfers without_shapes(std::span<const Transfer> transfers) {
  ThreadTransfers list;
  for (const Transfer& transfer : transfers)
    list.push_back({transfer.direction, transfer.tensor.dtype, transfer.peer, transfer.tensor.data,
                    transfer.tensor.elements()});
  return list;
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  std::string_view backend() const override { return "thread"; }
  bool sums_in_rank_order() const override { return true; }

  void all_reduce(Tensor inout, Reduce reduction, Stream& stream) override;
  void reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) override;
  void all_gather(Tensor out, Tensor in, Stream& stream) override;
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override;
  void broadcast(Tensor inout, int root, Stream& stream) override;
  void exchange(std::span<const Transfer> transfers, Stream& stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(std::string_view why) noexcept override { group_.world().abort(why); }
  void barrier() override;
  std::string status() override { return rank_table(group_.world().reports()); }
  void record_in(std::shared_ptr<FlightRecorder> recorder) override {
    group_.world().attach(group_.world_rank(rank_), recorder);
    Communicator::record_in(std::move(recorder));
  }

 private:
  Tensor input(int rank, DType dtype, int64_t begin, int64_t end) const;
  // The operations for the place where the stream's tensors live.
  const OpTable& ops_on(const Stream& stream) const {
    return stream.queue() != nullptr ? group_.world().ops : cpu_ops();
  }
  int64_t block_bytes(const Stream& stream) const {
    return stream.queue() != nullptr ? kDeviceBlockBytes : kBlockBytes * stream.pool().size();
  }
  // Runs `work` on every rank as ThreadGroup::collective does, on an inner stream, and synchronizes that. `sent`: the
  // bytes that this rank sends.
  template <class Inspect, class Work>
  void collective(const ThreadOffer& offer, int64_t sent, Stream& stream, Inspect inspect, Work work) {
    const Recorded recorded(*this, offer.call.kind, sent);
    Stream inner = stream.inner();
    group_.collective(rank_, offer, inspect, [&] {
      work(inner);
      inner.synchronize();
    });
  }

  void reduce_part(const Tensor& inout, Reduce reduction, Stream& stream);
  void reduce_into(const Tensor& out, int64_t first, Reduce reduction, Stream& stream);
  void fetch_rows(const Tensor& out, std::span<const int64_t> out_rows, size_t row_bytes, Stream& stream);
  std::string inspect_rows();
  void make_groups();

  ThreadGroup& group_;
  int rank_;
  Buffer aside_;  // temporary memory for one block of a sum; allocated on first use
};

// Elements [begin, end) of the `in` that `rank` published.
Tensor ThreadCommunicator::input(int rank, DType dtype, int64_t begin, int64_t end) const {
  auto* base = static_cast<std::byte*>(group_.offer(rank).in);
  return {base + static_cast<size_t>(begin) * size_of(dtype), dtype, {end - begin}};
}

// Reduces this rank's part of all tensors: the sum accumulates in rank 0's tensor, which already holds x0,
// and is copied from there, block by block, into the others. No other rank touches this part meanwhile.
void ThreadCommunicator::reduce_part(const Tensor& inout, Reduce reduction, Stream& stream) {
  const Part part = part_of(inout.elements(), rank_, size());
  const int64_t block = block_bytes(stream) / static_cast<int64_t>(size_of(inout.dtype));
  for (int64_t begin = part.begin; begin < part.end; begin += block) {
    const int64_t end = std::min(part.end, begin + block);
    const Tensor sum = input(0, inout.dtype, begin, end);
    for (int r = 1; r < size(); ++r)
      ops_on(stream).reduce(stream, sum, input(r, inout.dtype, begin, end), reduction);
    for (int r = 1; r < size(); ++r)
      copy_bytes(stream, input(r, inout.dtype, begin, end).data, sum.data, sum.bytes());
  }
}

void ThreadCommunicator::all_reduce(Tensor inout, Reduce reduction, Stream& stream) {
  const int64_t sent = count_ring(2, inout.bytes(), stream);
  stream.run([=, this, &stream] {
    ThreadOffer offer;
    offer.call = all_reduce_call(inout, reduction);
    offer.in = inout.data;
    collective(offer, sent, stream, kNothingToInspect,
               [&](Stream& on) { reduce_part(inout, reduction, on); });
  });
}

// out = x0 + x1 + ... over elements [first, first + count) of the inputs. If `out` aliases this rank's own
// input, it still holds a summand that may not be the first one, so the sum is computed in temporary memory.
void ThreadCommunicator::reduce_into(const Tensor& out, int64_t first, Reduce reduction, Stream& stream) {
  const int64_t count = out.elements();
  const int64_t block = std::min(count, block_bytes(stream) / static_cast<int64_t>(size_of(out.dtype)));
  const bool aliased = input(rank_, out.dtype, first, first + count).data == out.data;
  Device* device = stream.queue() != nullptr ? group_.world().ops.device : nullptr;
  if (aliased && (aside_.bytes() == 0 || aside_.device() != device))
    aside_ = Buffer(static_cast<size_t>(block_bytes(stream)), device);
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t end = std::min(count, begin + block);
    const Tensor target = out.flat(begin, end);
    const Tensor sum = aliased ? aside_.tensor(out.dtype, {end - begin}) : target;
    for (int r = 0; r < size(); ++r) {
      const Tensor x = input(r, out.dtype, first + begin, first + end);
      if (r == 0)
        copy_bytes(stream, sum.data, x.data, sum.bytes());
      else
        ops_on(stream).reduce(stream, sum, x, reduction);
    }
    copy_bytes(stream, target.data, sum.data, sum.bytes());
  }
}

void ThreadCommunicator::reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) {
  const int64_t sent = count_ring(1, in.bytes(), stream);
  stream.run([=, this, &stream] {
    ThreadOffer offer;
    offer.call = reduce_scatter_call(out, in, reduction, size());
    offer.in = in.data;
    collective(offer, sent, stream, kNothingToInspect,
               [&](Stream& on) { reduce_into(out, rank_ * out.elements(), reduction, on); });
  });
}

void ThreadCommunicator::all_gather(Tensor out, Tensor in, Stream& stream) {
  const int64_t sent = count_ring(1, out.bytes(), stream);
  stream.run([=, this, &stream] {
    ThreadOffer offer;
    offer.call = all_gather_call(out, in, size());
    offer.in = in.data;
    collective(offer, sent, stream, kNothingToInspect, [&](Stream& on) {
      const size_t bytes = in.bytes();
      for (int r = 0; r < size(); ++r)
        copy_bytes(on, static_cast<std::byte*>(out.data) + static_cast<size_t>(r) * bytes, group_.offer(r).in,
                   bytes);
    });
  });
}

std::string ThreadCommunicator::inspect_rows() {
  for (int from = 0; from < size(); ++from)
    for (int to = 0; to < size(); ++to) {
      const int64_t sent = group_.offer(from).in_rows[to];
      const int64_t expected = group_.offer(to).out_rows[from];
      if (sent != expected)
        return row_disagreement(group_.name(), group_.world_rank(from), sent, group_.world_rank(to),
                                expected);
    }
  return "";
}

void ThreadCommunicator::fetch_rows(const Tensor& out, std::span<const int64_t> out_rows, size_t row_bytes,
                                    Stream& stream) {
  auto* to = static_cast<std::byte*>(out.data);
  for (int r = 0; r < size(); ++r) {
    const ThreadOffer& peer = group_.offer(r);
    const auto skipped = static_cast<size_t>(std::accumulate(peer.in_rows, peer.in_rows + rank_, int64_t{0}));
    const size_t bytes = static_cast<size_t>(out_rows[static_cast<size_t>(r)]) * row_bytes;
    if (bytes > 0)
      copy_bytes(stream, to, static_cast<const std::byte*>(peer.in) + skipped * row_bytes, bytes);
    to += bytes;
  }
}

void ThreadCommunicator::all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows,
                                    std::span<const int64_t> in_rows, Stream& stream) {
  const int64_t sent = count_rows(in, in_rows, stream);
  using Rows = SmallList<int64_t, 8>;  // no allocation for up to this many ranks
  stream.run([=, this, &stream, out_counts = Rows(out_rows), in_counts = Rows(in_rows)] {
    ThreadOffer offer;
    offer.call = all_to_all_call(out, in, out_counts, in_counts, size());
    offer.in = in.data;
    offer.out_rows = out_counts.begin();
    offer.in_rows = in_counts.begin();
    const size_t row_bytes = static_cast<size_t>(offer.call.count) * size_of(in.dtype);
    collective(
        offer, sent, stream, [&] { return inspect_rows(); },
        [&](Stream& on) { fetch_rows(out, out_counts, row_bytes, on); });
  });
}

void ThreadCommunicator::broadcast(Tensor inout, int root, Stream& stream) {
  const int64_t sent = count_ring(1, inout.bytes(), stream);
  stream.run([=, this, &stream] {
    ThreadOffer offer;
    offer.call = broadcast_call(inout, root, size());
    if (offer.call.problem == CallProblem::None) offer.call.root = group_.world_rank(root);
    offer.in = inout.data;
    collective(offer, sent, stream, kNothingToInspect,
               [&](Stream& on) { copy_bytes(on, inout.data, group_.offer(root).in, inout.bytes()); });
  });
}

void ThreadCommunicator::exchange(std::span<const Transfer> transfers, Stream& stream) {
  count_transfers(transfers, stream);
  stream.run([this, &stream, batch = without_shapes(transfers)] {
    Recorded recorded(*this);
    for (const ThreadTransfer& transfer : batch)
      if (transfer.peer >= 0 && transfer.peer < size())
        recorded.add_message(transfer.direction, transfer.peer, group_.world_rank(transfer.peer),
                             transfer.tensor().bytes());
    Stream inner = stream.inner();
    group_.exchange(rank_, batch, [&](void* to, const void* from, size_t bytes) {
      copy_bytes(inner, to, from, bytes);
      inner.synchronize();
    });
  });
}

void ThreadCommunicator::barrier() {
  ThreadOffer offer;
  offer.call.kind = CallKind::Barrier;
  const Recorded recorded(*this, CallKind::Barrier, 0);
  group_.collective(rank_, offer, kNothingToInspect, [] {});
}

// The first rank of every color, by (key, rank), makes the group and hands it to its members.
void ThreadCommunicator::make_groups() {
  const int color = group_.offer(rank_).color;
  std::vector<std::tuple<int, int>> members;  // (key, rank)
  for (int r = 0; r < size(); ++r)
    if (group_.offer(r).color == color) members.emplace_back(group_.offer(r).key, r);
  std::sort(members.begin(), members.end());
  if (std::get<1>(members[0]) != rank_) return;
  std::vector<int> world_ranks;
  for (const auto& member : members)
    world_ranks.push_back(group_.world_ranks()[static_cast<size_t>(std::get<1>(member))]);
  ThreadGroup& made = group_.world().add(std::move(world_ranks));
  for (const auto& member : members) group_.offer(std::get<1>(member)).made = &made;
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  ThreadOffer offer;
  offer.call.kind = CallKind::Split;
  offer.color = color;
  offer.key = key;
  const Recorded recorded(*this, CallKind::Split, 0);
  group_.collective(rank_, offer, kNothingToInspect, [&] { make_groups(); });
  ThreadGroup& made = *group_.offer(rank_).made;
  const auto& members = made.world_ranks();
  const int me = group_.world_ranks()[static_cast<size_t>(rank_)];
  const auto found = std::find(members.begin(), members.end(), me);
  auto child = std::make_unique<ThreadCommunicator>(made, static_cast<int>(found - members.begin()));
  child->join(*this, members);
  return child;
}

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout)
    : ThreadWorld(size, timeout, cpu_ops()) {}

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout, const OpTable& ops)
    : groups_(std::make_unique<ThreadGroups>(size, timeout, ops)) {
  check(size >= 1, "a world needs at least one rank, not {}", size);
  world_group_ = &groups_->add(first_ranks(size));
}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::size() const { return groups_->world_size; }

std::unique_ptr<Communicator> ThreadWorld::join(int rank) {
  check(rank >= 0 && rank < size(), "there is no rank {} in a world of {}", rank, size());
  groups_->settle(rank);
  return std::make_unique<ThreadCommunicator>(*world_group_, rank);
}

void ThreadWorld::abort(std::string_view why) noexcept { groups_->abort(why); }

std::string ThreadWorld::status() const { return rank_table(groups_->reports()); }

bool ThreadWorld::aborted() const { return groups_->aborted(); }

std::string ThreadWorld::why() const { return groups_->aborted() ? groups_->why() : ""; }

bool ThreadWorld::timed_out() const { return groups_->timed_out(); }

}  // namespace trifold
