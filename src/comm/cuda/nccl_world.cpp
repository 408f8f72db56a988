#include "comm/cuda/nccl_world.cuh"

#include <algorithm>

#include "comm/call.h"
#include "core/cuda/cuda_error.cuh"

namespace trifold::cuda {

namespace {

constexpr std::chrono::milliseconds kLook{5};    // between two looks at what is enqueued
constexpr std::chrono::microseconds kPoll{200};  // while a call of NCCL is in progress
constexpr std::chrono::minutes kConnecting{1};   // for which a communicator is waited for at least

}  // namespace

Nccl::Nccl() {
  library.find("ncclGetErrorString", &text);
  library.find("ncclGetLastError", &last_error);
  library.find("ncclGetUniqueId", &unique_id);
  library.find("ncclCommInitRankConfig", &init);
  library.find("ncclCommSplit", &split);
  library.find("ncclCommGetAsyncError", &async_error);
  library.find("ncclCommAbort", &abort);
  library.find("ncclGroupStart", &group_start);
  library.find("ncclGroupEnd", &group_end);
  library.find("ncclAllReduce", &all_reduce);
  library.find("ncclReduceScatter", &reduce_scatter);
  library.find("ncclAllGather", &all_gather);
  library.find("ncclBroadcast", &broadcast);
  library.find("ncclSend", &send);
  library.find("ncclRecv", &receive);
}

const Nccl& nccl() {
  static const Nccl kNccl;
  return kNccl;
}

NcclWorld::NcclWorld(Communicator& host, CudaDevice& device, std::chrono::milliseconds timeout)
    : host_(host), news_(host.split(0, host.rank())), device_(device), timeout_(timeout), thread_([this] {
        watch_loop();
      }) {}

NcclWorld::~NcclWorld() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  static_cast<void>(cudaSetDevice(device_.index()));
  for (const Pending& pending : pending_) static_cast<void>(cudaEventDestroy(pending.done));
  for (cudaEvent_t event : spare_) static_cast<void>(cudaEventDestroy(event));
}

void NcclWorld::throw_if_aborted() const {
  if (aborted_.load()) throw Error(why_, ErrorKind::Aborted);
}

std::chrono::milliseconds NcclWorld::time_to_connect() const {
  return std::max<std::chrono::milliseconds>(timeout_, kConnecting);
}

// Waits until a call that NCCL goes on with in the background has been made.
void NcclWorld::accept(ncclResult_t result, ncclComm_t communicator, const char* what,
                       std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (result == ncclInProgress && communicator != nullptr) {
    throw_if_aborted();
    if (nccl().async_error(communicator, &result) != ncclSuccess) break;
    if (result != ncclInProgress) break;
    check(Clock::now() < deadline, "NCCL was not done after {} with {}: another rank did not come",
          to_string(timeout), what);
    std::this_thread::sleep_for(kPoll);
  }
  if (result == ncclSuccess) return;
  fail("NCCL failed in {} on {}: {} ({})", what, device_.name(), nccl().text(result),
       nccl().last_error(communicator));
}

cudaEvent_t NcclWorld::take_event() {
  const std::lock_guard lock(mutex_);
  if (!spare_.empty()) {
    const cudaEvent_t event = spare_.back();
    spare_.pop_back();
    return event;
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event on {}",
             device_.name());
  return event;
}

void NcclWorld::watch(ncclComm_t communicator, cudaStream_t stream, const std::string& what) {
  const cudaEvent_t event = take_event();
  check_cuda(cudaEventRecord(event, stream), "recording an event on {}", device_.name());
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back({event, communicator, Clock::now() + timeout_, what});
  }
  changed_.notify_all();
}

// What is wrong with something enqueued; empty while nothing is.
std::string NcclWorld::trouble_with(const Pending& pending) {
  ncclResult_t result = ncclSuccess;
  if (nccl().async_error(pending.communicator, &result) == ncclSuccess && result != ncclSuccess &&
      result != ncclInProgress)
    return fmt::format("NCCL failed in {}: {} ({})", pending.what, nccl().text(result),
                       nccl().last_error(pending.communicator));
  if (Clock::now() < pending.deadline) return "";
  return fmt::format("rank {} gave up after {} in {}: another rank died, or made another call", host_.rank(),
                     to_string(timeout_), pending.what);
}

// Why another rank gave up; empty while none has. NCCL's kernels here would wait for it.
std::string NcclWorld::trouble_of_others() {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  try {
    news_->exchange({}, stream);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void NcclWorld::watch_loop() {
  static_cast<void>(cudaSetDevice(device_.index()));
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
    if (stopping_) return;
    std::string trouble;
    for (auto it = pending_.begin(); it != pending_.end() && trouble.empty();) {
      const cudaError_t state = cudaEventQuery(it->done);
      if (state == cudaErrorNotReady) {
        trouble = trouble_with(*it);
        ++it;
        continue;
      }
      spare_.push_back(it->done);  // done, or the device failed, of which its stream tells
      it = pending_.erase(it);
    }
    lock.unlock();
    if (trouble.empty()) trouble = trouble_of_others();
    if (!trouble.empty()) abort(trouble);
    lock.lock();
    if (!trouble.empty()) pending_.clear();
    changed_.wait_for(lock, kLook, [this] { return stopping_; });
  }
}

void NcclWorld::forget(ncclComm_t communicator) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(communicators_.begin(), communicators_.end(), communicator);
    if (found == communicators_.end()) return;  // aborted, and gone with that
    communicators_.erase(found);
    std::erase_if(pending_, [&](const Pending& p) { return p.communicator == communicator; });
  }
  const std::lock_guard calling(call_mutex_);
  static_cast<void>(cudaSetDevice(device_.index()));
  static_cast<void>(nccl().abort(communicator));
}

void NcclWorld::abort(std::string_view why) noexcept {
  std::vector<ncclComm_t> doomed;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    try {
      why_ = why;
    } catch (...) {  // no memory for the reason; waking the others matters more
    }
    aborted_.store(true);
    doomed.swap(communicators_);
  }
  {
    const std::lock_guard calling(call_mutex_);
    static_cast<void>(cudaSetDevice(device_.index()));
    for (ncclComm_t communicator : doomed) static_cast<void>(nccl().abort(communicator));
  }
  host_.abort(why);
}

}  // namespace trifold::cuda
