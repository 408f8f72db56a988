#include "comm/mpi/mpi_comm.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

namespace trifold {

// Memory for messages besides the caller's tensors.
struct MpiCommunicator::Workspace {
  std::vector<std::byte> outgoing;
  std::vector<std::byte> incoming;
  Buffer parts;  // other ranks' summands
};

namespace {

constexpr int64_t kSegmentBytes = 8 << 20;  // a reduction processes its tensor in segments of this size ...
constexpr int64_t kPartBytesAtLeast = 64 << 10;  // ... or larger ones, so that each rank's part has this size

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

std::byte* at(const Tensor& tensor, int64_t element) {
  return static_cast<std::byte*>(tensor.data) + static_cast<size_t>(element) * size_of(tensor.dtype);
}

Tensor elements(const Tensor& tensor, int64_t begin, int64_t end) {
  return {at(tensor, begin), tensor.dtype, {end - begin}};
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::unique_ptr<MpiWorld> world)
    : MpiCommunicator(*world, first_ranks(world->size()), 0) {
  owned_ = std::move(world);
}

MpiCommunicator::MpiCommunicator(MpiWorld& world, std::vector<int> world_ranks, int context)
    : world_(world),
      world_ranks_(std::move(world_ranks)),
      context_(context),
      group_(std::make_shared<const std::string>(name_group(world_ranks_, world.size()))),
      workspace_(std::make_unique<Workspace>()) {
  const auto me = std::find(world_ranks_.begin(), world_ranks_.end(), world.rank());
  rank_ = static_cast<int>(me - world_ranks_.begin());
}

MpiCommunicator::~MpiCommunicator() {
  if (world_.broken()) workspace_.release();  // NOLINT: pending messages may still use it
}

// ---- messages ----

std::string MpiCommunicator::missing(const MpiRequests& requests, std::span<const Piece> to_receive) const {
  // A large piece is several messages, in order; it suffices to know whether any message of a rank is left.
  std::vector<int> ranks;
  size_t request = 0;
  constexpr size_t kMessage = size_t{8} << 20;
  for (const Piece& piece : to_receive) {
    const size_t messages = std::max<size_t>(1, (piece.bytes + kMessage - 1) / kMessage);
    bool open = false;
    for (size_t i = 0; i < messages && request < requests.receives.size(); ++i)
      open = requests.receives[request++] != MPI_REQUEST_NULL || open;
    if (open) ranks.push_back(world_rank(piece.peer));
  }
  if (ranks.empty()) return "the messages to be taken";
  return name_ranks(ranks) + " to come";
}

void MpiCommunicator::move(std::span<const Piece> to_send, std::span<const Piece> to_receive, MpiTag tag) {
  MpiRequests requests;
  {
    const auto held = world_.lock();
    world_.note(call_, group_, false);
    for (const Piece& piece : to_receive)
      world_.receive(requests, piece.data, piece.bytes, world_rank(piece.peer), context_, tag);
    for (const Piece& piece : to_send)
      world_.send(requests, piece.data, piece.bytes, world_rank(piece.peer), context_, tag);
  }
  world_.wait(requests, [&] {
    return fmt::format("{} in {}, for {}", to_string(call_), name_, missing(requests, to_receive));
  });
}

// Element r of the result is the value that rank r has for this rank. T must be trivially copyable.
template <class T>
std::vector<T> MpiCommunicator::from_all(const std::vector<T>& for_each, MpiTag tag) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto count = static_cast<size_t>(size());
  workspace_->outgoing.resize(count * sizeof(T));
  workspace_->incoming.resize(count * sizeof(T));
  std::memcpy(workspace_->outgoing.data(), for_each.data(), count * sizeof(T));
  std::vector<Piece> sends, receives;
  for (int peer = 0; peer < size(); ++peer) {
    const size_t offset = static_cast<size_t>(peer) * sizeof(T);
    if (peer == rank_) {
      std::memcpy(workspace_->incoming.data() + offset, workspace_->outgoing.data() + offset, sizeof(T));
      continue;
    }
    sends.push_back({peer, workspace_->outgoing.data() + offset, sizeof(T)});
    receives.push_back({peer, workspace_->incoming.data() + offset, sizeof(T)});
  }
  move(sends, receives, tag);
  std::vector<T> result(count);
  std::memcpy(result.data(), workspace_->incoming.data(), count * sizeof(T));
  return result;
}

void MpiCommunicator::agree(Call call) {
  world_.throw_if_broken();
  call.number = calls_++;
  call_ = call;
  const auto calls = from_all(std::vector<Call>(static_cast<size_t>(size()), call), MpiTag::Call);
  if (const auto problem = disagreement(calls, name_, world_ranks_)) throw Error(*problem);
}

// ---- reductions ----

// The number of elements that a reduction processes at a time, over all ranks.
int64_t MpiCommunicator::segment(DType dtype) const {
  return std::max(kSegmentBytes, kPartBytesAtLeast * size()) / static_cast<int64_t>(size_of(dtype));
}

// out = parts[0] + parts[1] + ..., which may all be overwritten, except that this rank's own part is only
// read, unless `out` is that part.
void MpiCommunicator::reduce_parts(const Tensor& out, std::span<const Tensor> parts, Reduce reduction,
                                   ThreadPool& pool) {
  Stream inline_stream(Stream::Mode::Inline, pool);
  if (rank_ == 0) copy(out.data, parts[0].data, out.bytes());
  const Tensor sum = rank_ == 0 ? out : parts[0];
  for (size_t r = 1; r < parts.size(); ++r) world_.ops().reduce(inline_stream, sum, parts[r], reduction);
  copy(out.data, sum.data, out.bytes());
}

void MpiCommunicator::all_reduce(Tensor inout, Reduce reduction, Stream& stream) {
  const int64_t sent = count_ring(2, inout.bytes(), stream);
  stream.run([=, this, &stream] {
    const Recorded recorded(*this, CallKind::AllReduce, sent);
    agree(all_reduce_call(inout, reduction));
    if (size() == 1) return;
    const int64_t count = inout.elements();
    const int64_t step = segment(inout.dtype);
    for (int64_t begin = 0; begin < count; begin += step) {
      const Tensor here = elements(inout, begin, std::min(count, begin + step));
      const auto part = [&](int r) {
        const Part range = part_of(here.elements(), r, size());
        return elements(here, range.begin, range.end);
      };
      const Tensor mine = part(rank_);
      const size_t need = mine.bytes() * static_cast<size_t>(size());
      if (workspace_->parts.bytes() < need) workspace_->parts = Buffer(need);
      std::vector<Piece> sends, receives, results, sums;
      std::vector<Tensor> summands;
      for (int r = 0; r < size(); ++r) {
        const Tensor theirs = part(r);
        std::byte* place = workspace_->parts.data() + mine.bytes() * static_cast<size_t>(r);
        summands.push_back(r == rank_ ? mine : Tensor{place, mine.dtype, mine.shape});
        if (r == rank_) continue;
        if (mine.bytes() > 0) receives.push_back({r, place, mine.bytes()});
        if (theirs.bytes() > 0) sends.push_back({r, theirs.data, theirs.bytes()});
      }
      move(sends, receives, MpiTag::Data);
      if (mine.bytes() > 0) reduce_parts(mine, summands, reduction, stream.pool());
      for (const Piece& piece : sends)
        results.push_back(piece);  // their sums return to where the parts came from
      for (const Piece& piece : receives) sums.push_back({piece.peer, mine.data, mine.bytes()});
      move(sums, results, MpiTag::Data);
    }
  });
}

void MpiCommunicator::reduce_scatter(Tensor out, Tensor in, Reduce reduction, Stream& stream) {
  const int64_t sent = count_ring(1, in.bytes(), stream);
  stream.run([=, this, &stream] {
    const Recorded recorded(*this, CallKind::ReduceScatter, sent);
    agree(reduce_scatter_call(out, in, reduction, size()));
    const int64_t count = out.elements();
    const int64_t step = std::max<int64_t>(1, segment(out.dtype) / size());
    for (int64_t begin = 0; begin < count; begin += step) {
      const int64_t end = std::min(count, begin + step);
      const Tensor target = elements(out, begin, end);
      const size_t need = target.bytes() * static_cast<size_t>(size());
      if (workspace_->parts.bytes() < need) workspace_->parts = Buffer(need);
      std::vector<Piece> sends, receives;
      std::vector<Tensor> summands;
      for (int r = 0; r < size(); ++r) {
        std::byte* place = workspace_->parts.data() + target.bytes() * static_cast<size_t>(r);
        const Tensor part = elements(in, r * count + begin, r * count + end);
        summands.push_back(r == rank_ ? part : Tensor{place, out.dtype, target.shape});
        if (r == rank_) continue;
        receives.push_back({r, place, target.bytes()});
        sends.push_back({r, part.data, part.bytes()});
      }
      move(sends, receives, MpiTag::Data);
      reduce_parts(target, summands, reduction, stream.pool());
    }
  });
}

// ---- movement ----

void MpiCommunicator::all_gather(Tensor out, Tensor in, Stream& stream) {
  const int64_t sent = count_ring(1, out.bytes(), stream);
  stream.run([=, this] {
    const Recorded recorded(*this, CallKind::AllGather, sent);
    agree(all_gather_call(out, in, size()));
    const int64_t count = in.elements();
    if (count == 0) return;
    std::vector<Piece> sends, receives;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      sends.push_back({r, in.data, in.bytes()});
      receives.push_back({r, at(out, r * count), in.bytes()});
    }
    copy(at(out, rank_ * count), in.data, in.bytes());
    move(sends, receives, MpiTag::Data);
  });
}

// Sender and receiver compare their row counts; then all ranks learn the first pair that differs.
void MpiCommunicator::check_rows(std::span<const int64_t> out_rows, std::span<const int64_t> in_rows) {
  struct Difference {
    int32_t sender;
    int32_t receiver;
    int64_t sent;
    int64_t expected;
  };
  const auto sent = from_all(std::vector<int64_t>(in_rows.begin(), in_rows.end()), MpiTag::Row);
  Difference mine{size(), 0, 0, 0};  // no such sender: all counts agree
  for (int sender = size() - 1; sender >= 0; --sender) {
    const auto s = static_cast<size_t>(sender);
    if (sent[s] != out_rows[s]) mine = {sender, rank_, sent[s], out_rows[s]};
  }
  const auto is_rank = [&](int32_t rank) { return rank >= 0 && rank < size(); };
  const auto all = from_all(std::vector<Difference>(static_cast<size_t>(size()), mine), MpiTag::RowProblem);
  const auto first = *std::min_element(all.begin(), all.end(), [](const Difference& a, const Difference& b) {
    return std::tie(a.sender, a.receiver) < std::tie(b.sender, b.receiver);
  });
  if (first.sender == size()) return;
  check(
      is_rank(first.sender) && is_rank(first.receiver),
      "all_to_all in {}: a message about its row counts names ranks {} and {} of {}: it was damaged in transit",
      name_, first.sender, first.receiver, size());
  throw Error(row_disagreement(name_, world_rank(first.sender), first.sent, world_rank(first.receiver),
                               first.expected));
}

void MpiCommunicator::all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows,
                                 std::span<const int64_t> in_rows, Stream& stream) {
  const int64_t sent = count_rows(in, in_rows, stream);
  stream.run([=, this, out_counts = std::vector<int64_t>(out_rows.begin(), out_rows.end()),
              in_counts = std::vector<int64_t>(in_rows.begin(), in_rows.end())] {
    const Recorded recorded(*this, CallKind::AllToAll, sent);
    const Call call = all_to_all_call(out, in, out_counts, in_counts, size());
    agree(call);
    check_rows(out_counts, in_counts);
    std::vector<Piece> sends, receives;
    int64_t to = 0;
    int64_t from = 0;
    for (int r = 0; r < size(); ++r) {
      const int64_t arriving = out_counts[static_cast<size_t>(r)] * call.count;
      const int64_t leaving = in_counts[static_cast<size_t>(r)] * call.count;
      const Tensor source = elements(in, from, from + leaving);
      const Tensor target = elements(out, to, to + arriving);
      if (r == rank_)
        copy(target.data, source.data, target.bytes());
      else if (arriving > 0)
        receives.push_back({r, target.data, target.bytes()});
      if (r != rank_ && leaving > 0) sends.push_back({r, source.data, source.bytes()});
      to += arriving;
      from += leaving;
    }
    move(sends, receives, MpiTag::Data);
  });
}

// A binomial tree: counted from the root, rank v receives the data from v without its lowest set bit, and
// passes it on to v + 1, v + 2, v + 4, ... below that bit.
void MpiCommunicator::broadcast(Tensor inout, int root, Stream& stream) {
  const int64_t sent = count_ring(1, inout.bytes(), stream);
  stream.run([=, this] {
    const Recorded recorded(*this, CallKind::Broadcast, sent);
    Call call = broadcast_call(inout, root, size());
    if (call.problem == CallProblem::None) call.root = world_rank(root);
    agree(call);
    if (inout.elements() == 0) return;
    const auto piece = [&](int v) { return Piece{(v + root) % size(), inout.data, inout.bytes()}; };
    const int me = (rank_ - root + size()) % size();
    int bit = 1;
    while (bit < size() && (me & bit) == 0) bit *= 2;
    if (me != 0) {
      const std::vector<Piece> parent{piece(me - bit)};
      move({}, parent, MpiTag::Data);
    }
    std::vector<Piece> children;
    for (bit /= 2; bit > 0; bit /= 2)
      if (me + bit < size()) children.push_back(piece(me + bit));
    move(children, {}, MpiTag::Data);
  });
}

void MpiCommunicator::barrier() {
  const Recorded recorded(*this, CallKind::Barrier, 0);
  agree(Call{});
}

void MpiCommunicator::record_in(std::shared_ptr<FlightRecorder> recorder) {
  world_.attach(recorder);
  Communicator::record_in(std::move(recorder));
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  struct Proposal {
    int color;
    int key;
    int context;
  };
  Call call;
  call.kind = CallKind::Split;
  const Recorded recorded(*this, CallKind::Split, 0);
  agree(call);
  const Proposal mine{color, key, world_.propose_context()};
  const auto proposals = from_all(std::vector<Proposal>(static_cast<size_t>(size()), mine), MpiTag::Split);
  int context = 0;
  std::vector<std::tuple<int, int>> members;  // (key, rank here)
  for (int r = 0; r < size(); ++r) {
    const Proposal& proposal = proposals[static_cast<size_t>(r)];
    context = std::max(context, proposal.context);
    if (proposal.color == color) members.emplace_back(proposal.key, r);
  }
  world_.use_context(context);
  std::sort(members.begin(), members.end());
  std::vector<int> world_ranks;
  for (const auto& member : members) world_ranks.push_back(world_rank(std::get<1>(member)));
  auto child = std::make_unique<MpiCommunicator>(world_, std::move(world_ranks), context);
  child->join(*this, child->world_ranks_);
  return child;
}

}  // namespace trifold
