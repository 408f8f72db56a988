#include "cuda/fake_nccl.h"

#include <algorithm>

using namespace std::chrono_literals;

namespace trifold::test {

std::unique_ptr<FakeNccl> fake_nccl;

namespace {

thread_local std::vector<ncclComm*> group;
thread_local int group_depth = 0;

const char* text(ncclResult_t result) { return result == ncclInvalidArgument ? "invalid argument" : "text"; }
const char* last_error(ncclComm_t) { return "fake"; }

ncclResult_t async_error(ncclComm_t comm, ncclResult_t* result) {
  if (comm == nullptr || comm->freed) {
    ++fake_nccl->touched_freed;
    return ncclInvalidArgument;
  }
  if (comm->asks_left > 0 && --comm->asks_left == 0) comm->state = ncclSuccess;
  *result = comm->state;
  return ncclSuccess;
}

// The handle is there at once; the ranks meet in the background.
ncclResult_t init(ncclComm_t* made, int, ncclUniqueId, int, ncclConfig_t*) {
  ncclComm* comm = fake_nccl->add();
  comm->state = ncclInProgress;
  *made = comm;
  comm->job = std::thread([comm] {
    std::this_thread::sleep_for(5ms);
    comm->state = ncclSuccess;
  });
  return ncclInProgress;
}

// Success at once, the handle later, the parent in progress until then.
ncclResult_t split(ncclComm_t parent, int, int, ncclComm_t* made, ncclConfig_t*) {
  if (parent->state != ncclSuccess) return ncclInvalidArgument;
  parent->join();
  parent->state = ncclInProgress;
  *made = nullptr;
  parent->job = std::thread([parent, made] {
    const auto until = std::chrono::steady_clock::now() + fake_nccl->split_takes;
    while (!parent->aborted && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    *made = fake_nccl->add();
    parent->state = ncclSuccess;
  });
  return ncclSuccess;
}

// The first one connects: in progress until all ranks have come, or the communicator was aborted.
ncclResult_t all_reduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                        cudaStream_t stream) {
  if (comm == nullptr || comm->freed) ++fake_nccl->touched_freed;
  if (comm == nullptr || comm->state != ncclSuccess) return ncclInvalidArgument;
  comm->join();
  comm->stream = stream;
  if (fake_nccl->sum_takes_asks > 0) {
    comm->asks_left = fake_nccl->sum_takes_asks;
    comm->state = ncclInProgress;
    return ncclInProgress;
  }
  if (comm->connected || comm->meeting == nullptr) return ncclSuccess;
  comm->connected = true;
  comm->state = ncclInProgress;
  comm->job = std::thread([comm] {
    std::unique_lock lock(comm->meeting->mutex);
    --comm->meeting->missing;
    comm->meeting->changed.notify_all();
    while (comm->meeting->missing > 0 && !comm->aborted) comm->meeting->changed.wait_for(lock, 1ms);
    comm->state = ncclSuccess;
  });
  return ncclInProgress;
}

ncclResult_t group_start() {
  ++group_depth;
  return ncclSuccess;
}

// Signals the kernels of all of them to end; then frees each, which waits for everything on the device.
void end(const std::vector<ncclComm*>& doomed) {
  for (ncclComm* comm : doomed) {
    comm->aborted = true;
    comm->join();
    if (CUstream_st* stream = comm->stream) stream->stuck = 0;
  }
  const auto busy = [] {
    const std::lock_guard lock(fake_nccl->mutex);
    return std::any_of(fake_nccl->all.begin(), fake_nccl->all.end(), [](const auto& comm) {
      const CUstream_st* stream = comm->stream;
      return !comm->freed && stream != nullptr && stream->stuck > 0;
    });
  };
  for (int i = 0; busy(); ++i) {
    if (i == 1000) {
      ++fake_nccl->hung;
      break;
    }
    std::this_thread::sleep_for(1ms);
  }
  for (ncclComm* comm : doomed) comm->freed = true;
}

ncclResult_t abort_one(ncclComm_t comm) {
  group.push_back(comm);
  if (group_depth == 0) end(std::exchange(group, {}));
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (--group_depth == 0) end(std::exchange(group, {}));
  return ncclSuccess;
}

}  // namespace

const cuda::Nccl& fake_nccl_table() {
  static const cuda::Nccl kTable = [] {
    cuda::Nccl t;
    t.text = text;
    t.last_error = last_error;
    t.async_error = async_error;
    t.init = init;
    t.split = split;
    t.abort = abort_one;
    t.group_start = group_start;
    t.group_end = group_end;
    t.all_reduce = all_reduce;
    return t;
  }();
  return kTable;
}

}  // namespace trifold::test
