// A pretended NCCL between ranks that are threads, each on a fake device: computes what NCCL promises, in the order of
// ranks, and records every call (recorder.h). The module of this folder is found as libnccl.so.2 too.
//
// It promises more than NCCL, so that runs end whose order could deadlock there, and can be checked: sends do not wait for
// their receives, and no collective or message blocks the host.
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "comm/cuda_module.h"
#include "core/error.h"
#include "nccl_order/recorder.h"
#include "nccl_order/runtime.h"
#include "ops/ops.h"

namespace trifold::test {
namespace {

using Bytes = std::vector<std::byte>;
using Kind = OrderEntry::Kind;

// A collective of all ranks, kept until all have its result.
struct Meeting {
  OrderEntry call;  // as the first rank made it
  bool same = true;
  std::vector<Bytes> inputs;  // by rank
  int arrived = 0, left = 0;
  Bytes result;
};

struct Joining {
  int color, key, rank;
  ncclComm_t* made;
};

// What the ranks of a communicator share.
struct SharedComm {
  int number = 0;  // index in the record
  std::vector<int> world_ranks;
  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  int joined = 0;
  std::map<uint64_t, Meeting> meetings;                   // by number of the call
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // by sender and receiver
  std::map<uint64_t, std::vector<Joining>> splits;        // by number of the split

  int size() const { return static_cast<int>(world_ranks.size()); }
};

}  // namespace
}  // namespace trifold::test

// One rank's communicator. Never freed: work on streams may refer to it.
struct ncclComm {
  std::shared_ptr<trifold::test::SharedComm> shared;
  int rank = 0;
  uint64_t calls = 0, splits = 0;
  std::atomic<bool> splitting{false}, aborted{false};
};

namespace trifold::test {
namespace {

// Of ncclDataType_t and DType, the types that Trifold gives to NCCL.
DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      return DType::F64;
    case ncclFloat32:
      return DType::F32;
    case ncclBfloat16:
      return DType::BF16;
    case ncclFloat16:
      return DType::F16;
    case ncclInt64:
      return DType::I64;
    case ncclInt32:
      return DType::I32;
    default:
      return DType::U8;
  }
}

int world_rank(const ncclComm& comm) { return comm.shared->world_ranks[static_cast<size_t>(comm.rank)]; }

// Memory as the device itself reads it. Not to be called by work on a queue, for which a release of memory waits.
std::byte* real(FakeDeviceQueue& queue, const void* address) {
  void* own = queue.device().real(address);
  return static_cast<std::byte*>(own != nullptr ? own : const_cast<void*>(address));
}

// sum[i] = sum[i] + x[i], or the larger one.
void accumulate(Bytes& sum, const Bytes& x, DType dtype, bool is_sum) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  const auto count = static_cast<int64_t>(std::min(sum.size(), x.size()) / size_of(dtype));
  cpu_ops().reduce(stream, {sum.data(), dtype, {count}}, {const_cast<std::byte*>(x.data()), dtype, {count}},
                   is_sum ? Reduce::Sum : Reduce::Max);
}

enum class Operation { AllReduce, ReduceScatter, AllGather, Broadcast };

struct Collective {
  Operation operation;
  const std::byte* in;  // as the device reads it
  std::byte* out;
  size_t count;  // of elements, as NCCL counts them
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  int root = -1;

  size_t bytes() const { return count * size_of(dtype_of(type)); }
};

OrderEntry entry_of(const Collective& call, int comm) {
  static const char* const kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
  OrderEntry entry;
  entry.comm = comm;
  entry.operation = kNames[static_cast<size_t>(call.operation)];
  if (call.operation == Operation::AllReduce || call.operation == Operation::ReduceScatter)
    entry.operation += call.reduction == ncclSum ? "(sum)" : "(max)";
  entry.count = static_cast<int64_t>(call.count);
  entry.type = name_of(dtype_of(call.type));
  entry.root = call.root;
  return entry;
}

Bytes result_of(const Collective& call, const std::vector<Bytes>& inputs) {
  if (call.operation == Operation::Broadcast) return inputs[static_cast<size_t>(call.root)];
  Bytes result = inputs[0];
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    if (call.operation == Operation::AllGather)
      result.insert(result.end(), inputs[rank].begin(), inputs[rank].end());
    else
      accumulate(result, inputs[rank], dtype_of(call.type), call.reduction == ncclSum);
  }
  return result;
}

bool same(const OrderEntry& a, const OrderEntry& b) {
  return std::tie(a.operation, a.count, a.type, a.root) == std::tie(b.operation, b.count, b.type, b.root);
}

// Runs on the stream: gives this rank's input, waits for the others', and takes the result. Ranks that made different
// calls get no result.
void meet_others(ncclComm& comm, uint64_t number, const Collective& call) {
  SharedComm& shared = *comm.shared;
  const auto size = static_cast<size_t>(shared.size());
  const size_t bytes = call.bytes();
  const bool has_input = call.operation != Operation::Broadcast || call.root == comm.rank;
  const size_t in_bytes = call.operation == Operation::ReduceScatter ? bytes * size : bytes;
  Bytes input;
  if (has_input && in_bytes > 0) input.assign(call.in, call.in + in_bytes);
  const size_t first =
      call.operation == Operation::ReduceScatter ? bytes * static_cast<size_t>(comm.rank) : 0;
  const size_t out_bytes = call.operation == Operation::AllGather ? bytes * size : bytes;
  std::unique_lock lock(shared.mutex);
  Meeting& meeting = shared.meetings[number];
  meeting.inputs.resize(size);
  const OrderEntry mine = entry_of(call, shared.number);
  if (meeting.arrived == 0) meeting.call = mine;
  meeting.same = meeting.same && same(meeting.call, mine);
  meeting.inputs[static_cast<size_t>(comm.rank)] = std::move(input);
  if (++meeting.arrived == shared.size()) {
    if (meeting.same) meeting.result = result_of(call, meeting.inputs);
    shared.changed.notify_all();
  }
  shared.changed.wait(lock, [&] { return meeting.arrived == shared.size() || comm.aborted; });
  if (meeting.arrived < shared.size()) return;
  if (meeting.same && out_bytes > 0) std::memcpy(call.out, meeting.result.data() + first, out_bytes);
  if (++meeting.left == shared.size()) shared.meetings.erase(number);
}

ncclResult_t enqueue(Collective call, const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
  if (comm->aborted || comm->splitting) return ncclInvalidUsage;
  FakeDeviceQueue& queue = queue_of(stream);
  call.in = real(queue, in);
  call.out = real(queue, out);
  OrderRecorder::instance().add(world_rank(*comm), entry_of(call, comm->shared->number), &queue);
  launch(stream, [comm, number = comm->calls++, call] { meet_others(*comm, number, call); });
  return ncclSuccess;
}

struct Message {
  bool sends;
  std::byte* data;  // as the device reads it
  size_t count;
  ncclDataType_t type;
  int peer;

  size_t bytes() const { return count * size_of(dtype_of(type)); }
};

void send(ncclComm& comm, const Message& message) {
  Bytes bytes(message.bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), message.data, bytes.size());
  {
    const std::lock_guard lock(comm.shared->mutex);
    comm.shared->mail[{comm.rank, message.peer}].push_back(std::move(bytes));
  }
  comm.shared->changed.notify_all();
}

void receive(ncclComm& comm, const Message& message) {
  std::unique_lock lock(comm.shared->mutex);
  std::deque<Bytes>& mail = comm.shared->mail[{message.peer, comm.rank}];
  comm.shared->changed.wait(lock, [&] { return !mail.empty() || comm.aborted; });
  if (mail.empty()) return;
  const Bytes bytes = std::move(mail.front());
  mail.pop_front();
  if (const size_t count = std::min(bytes.size(), message.bytes()); count > 0)
    std::memcpy(message.data, bytes.data(), count);
}

// The group that the thread has begun.
struct Group {
  int depth = 0;
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<Message>> messages;
};
thread_local Group group;

void enqueue_messages(ncclComm_t comm, cudaStream_t stream, std::vector<Message> messages) {
  FakeDeviceQueue& queue = queue_of(stream);
  OrderEntry entry;
  entry.kind = Kind::Messages;
  entry.comm = comm->shared->number;
  for (const Message& message : messages)
    entry.messages.push_back({message.sends, message.peer, static_cast<int64_t>(message.count),
                              std::string(name_of(dtype_of(message.type)))});
  OrderRecorder::instance().add(world_rank(*comm), std::move(entry), &queue);
  launch(stream, [comm, messages = std::move(messages)] {
    for (const Message& message : messages)
      if (message.sends) send(*comm, message);
    for (const Message& message : messages)
      if (!message.sends) receive(*comm, message);
  });
}

ncclResult_t end_group() {
  if (--group.depth > 0) return ncclSuccess;
  for (auto& [where, messages] : std::exchange(group.messages, {}))
    enqueue_messages(where.first, where.second, std::move(messages));
  return ncclSuccess;
}

ncclResult_t add_message(Message message, const void* data, ncclComm_t comm, cudaStream_t stream) {
  if (comm->aborted || comm->splitting) return ncclInvalidUsage;
  message.data = real(queue_of(stream), data);
  ++group.depth;
  group.messages[{comm, stream}].push_back(message);
  return end_group();
}

void record_making(const ncclComm& comm, const char* what) {
  OrderEntry entry;
  entry.kind = Kind::HostCall;
  entry.comm = comm.shared->number;
  entry.operation = what;
  OrderRecorder::instance().add(world_rank(comm), std::move(entry));
}

// Makes the communicators of a split, of which all ranks have come. The mutex of `parent` is held.
void make_children(const SharedComm& parent, uint64_t number, std::vector<Joining> all) {
  std::sort(all.begin(), all.end(), [](const Joining& a, const Joining& b) {
    return std::tie(a.color, a.key, a.rank) < std::tie(b.color, b.key, b.rank);
  });
  std::map<int, std::shared_ptr<SharedComm>> children;  // by color
  for (const Joining& joining : all) {
    auto& child = children[joining.color];
    if (child == nullptr) child = std::make_shared<SharedComm>();
    child->world_ranks.push_back(parent.world_ranks[static_cast<size_t>(joining.rank)]);
  }
  for (auto& [color, child] : children) {
    child->joined = child->size();
    child->number = OrderRecorder::instance().comm(fmt::format("nccl {} {} {}", parent.number, number, color),
                                                   "nccl", child->world_ranks);
  }
  std::map<int, int> ranks;  // next rank, by color
  for (const Joining& joining : all) {
    auto* comm = new ncclComm;
    comm->shared = children[joining.color];
    comm->rank = ranks[joining.color]++;
    *joining.made = comm;
  }
}

std::mutex first_mutex;
std::map<uint64_t, std::shared_ptr<SharedComm>> first_comms;  // by identifier
std::atomic<uint64_t> identifiers{0};

}  // namespace
}  // namespace trifold::test

using trifold::test::Collective;
using trifold::test::Operation;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : "a result of the pretended NCCL";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return "pretended"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const uint64_t number = ++trifold::test::identifiers;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* /*config*/) {
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  auto* comm = new ncclComm;
  comm->rank = rank;
  {
    const std::lock_guard lock(trifold::test::first_mutex);
    auto& shared = trifold::test::first_comms[number];
    if (shared == nullptr) {
      shared = std::make_shared<trifold::test::SharedComm>();
      for (int r = 0; r < ranks; ++r) shared->world_ranks.push_back(r);
      shared->number = trifold::test::OrderRecorder::instance().comm(fmt::format("nccl first {}", number),
                                                                     "nccl", shared->world_ranks);
    }
    comm->shared = shared;
    if (++shared->joined == ranks) trifold::test::first_comms.erase(number);
  }
  trifold::test::record_making(*comm, "init");
  *made = comm;
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made,
                           ncclConfig_t* /*config*/) {
  if (parent->aborted || parent->splitting) return ncclInvalidUsage;
  trifold::test::record_making(*parent, "split");
  trifold::test::SharedComm& shared = *parent->shared;
  *made = nullptr;
  parent->splitting = true;
  const std::lock_guard lock(shared.mutex);
  const uint64_t number = parent->splits++;
  auto& joining = shared.splits[number];
  joining.push_back({color, key, parent->rank, made});
  if (static_cast<int>(joining.size()) == shared.size()) {
    trifold::test::make_children(shared, number, joining);
    shared.splits.erase(number);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  trifold::test::SharedComm& shared = *comm->shared;
  bool all_joined = false;
  {
    const std::lock_guard lock(trifold::test::first_mutex);
    all_joined = shared.joined == shared.size();
  }
  const std::lock_guard lock(shared.mutex);
  if (comm->splitting && shared.splits.count(comm->splits - 1) == 0) comm->splitting = false;
  *result = all_joined && !comm->splitting ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->shared->mutex);
    comm->aborted = true;
    for (auto& split : comm->shared->splits)
      std::erase_if(split.second, [&](const auto& joining) { return joining.rank == comm->rank; });
  }
  comm->shared->changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++trifold::test::group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return trifold::test::end_group(); }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return trifold::test::enqueue({Operation::AllReduce, {}, {}, count, type, reduction}, in, out, comm,
                                stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return trifold::test::enqueue({Operation::ReduceScatter, {}, {}, count, type, reduction}, in, out, comm,
                                stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return trifold::test::enqueue({Operation::AllGather, {}, {}, count, type}, in, out, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return trifold::test::enqueue({Operation::Broadcast, {}, {}, count, type, ncclSum, root}, in, out, comm,
                                stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return trifold::test::add_message({true, nullptr, count, type, peer}, data, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return trifold::test::add_message({false, nullptr, count, type, peer}, data, comm, stream);
}

// For tests alone.
void nccl_order_begin(int ranks) { trifold::test::OrderRecorder::instance().begin(ranks); }
void nccl_order_take(trifold::test::OrderRecord* record) {
  *record = trifold::test::OrderRecorder::instance().take();
}
int nccl_order_comm(const std::string* key, const std::vector<int>* world_ranks) {
  return trifold::test::OrderRecorder::instance().comm(*key, "host", *world_ranks);
}
void nccl_order_add(int rank, const trifold::test::OrderEntry* entry) {
  trifold::test::OrderRecorder::instance().add(rank, *entry);
}
}
