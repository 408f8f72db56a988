#include "comm/cuda/nccl_world.cuh"

#include <algorithm>
#include <exception>

#include "comm/call.h"
#include "comm/rank_report.h"
#include "core/clock.h"
#include "core/error.h"

namespace trifold::cuda {

namespace {

constexpr std::chrono::milliseconds kLook{5};  // between two checks of the enqueued work
// While a call of NCCL is in progress, poll by spinning first: most calls are done within microseconds, and a
// sleeping thread would keep its device waiting for the next piece of work.
constexpr std::chrono::microseconds kSpin{1000};
constexpr int kAsks = 100;  // at least: on a busy machine another thread's turn may take longer than kSpin
constexpr std::chrono::microseconds kPoll{200};  // after that
constexpr std::chrono::minutes kConnecting{1};   // the shortest time-out for making a communicator

}  // namespace

// Marks a thread as waiting for NCCL, so that the watching thread checks for news of other ranks meanwhile.
class NcclWorld::Calling {
 public:
  explicit Calling(NcclWorld& world) : world_(world) {
    {
      const std::lock_guard lock(world_.mutex_);
      ++world_.calling_;
    }
    world_.changed_.notify_all();
  }
  ~Calling() {
    const std::lock_guard lock(world_.mutex_);
    --world_.calling_;
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

 private:
  NcclWorld& world_;
};

NcclWorld::NcclWorld(Communicator& host, const Nccl& table, std::unique_ptr<StreamMarks> marks,
                     std::chrono::milliseconds timeout)
    : host_(host),
      news_(host.split(0, host.rank())),
      nccl_(table),
      marks_(std::move(marks)),
      timeout_(timeout),
      thread_([this] { watch_loop(); }) {}

NcclWorld::~NcclWorld() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  marks_->use();
  for (const Pending& pending : pending_) marks_->destroy(pending.done);
  for (const Pending& pending : given_up_) marks_->destroy(pending.done);
  for (cudaEvent_t event : spare_) marks_->destroy(event);
}

void NcclWorld::throw_if_aborted() const {
  if (aborted_.load()) throw Error(why_, ErrorKind::Aborted);
}

std::chrono::milliseconds NcclWorld::time_to_connect() const {
  return std::max<std::chrono::milliseconds>(timeout_, kConnecting);
}

// "rank 3 (host a, pid 12)"
std::string NcclWorld::this_rank() const { return fmt::format("rank {} ({})", host_.rank(), this_process()); }

// Aborts the world because of an error of this rank, and sends it to the other ranks.
void NcclWorld::tell_and_abort(const Error& error) noexcept {
  try {
    abort(fmt::format("{}: {}", this_rank(), error.what()));
  } catch (...) {  // no memory for the message
    abort(error.what());
  }
}

SharedHandle NcclWorld::make(const std::string& what, std::string group, NcclHandle* parent,
                             const std::function<ncclResult_t(ncclComm_t* made)>& start) {
  auto made = std::make_shared<NcclHandle>();
  made->group = std::move(group);
  try {
    join(what, parent, made, start);
    return made;
  } catch (const Error& error) {
    tell_and_abort(error);
    throw;
  }
}

// Keeps `made` in the world from now on, even on failure: NCCL may write into it until it is aborted.
void NcclWorld::join(const std::string& what, NcclHandle* parent, const SharedHandle& made,
                     const std::function<ncclResult_t(ncclComm_t* made)>& start) {
  const Calling counted(*this);
  std::unique_lock<std::mutex> of_parent;
  if (parent != nullptr) of_parent = std::unique_lock(parent->calling);
  const std::lock_guard calling(made->calling);
  {
    const std::lock_guard lock(mutex_);
    throw_if_aborted();
    handles_.push_back(made);
  }
  marks_->use();
  ncclResult_t begun = start(&made->nccl);
  if (parent != nullptr) {
    // A split that has only begun returns success; the parent then stays in progress until the split is made.
    if (begun == ncclSuccess) begun = ncclInProgress;
    accept(begun, parent->nccl, what, made->group, time_to_connect());
    begun = ncclInProgress;  // ask the child too
  }
  check(made->nccl != nullptr, "NCCL made no communicator in {} of {} on {}: {}", what, made->group,
        marks_->device_name(), nccl_.last_error(nullptr));
  accept(begun, made->nccl, what, made->group, time_to_connect());
}

// Waits until a call that NCCL continues in the background is complete.
void NcclWorld::accept(ncclResult_t result, ncclComm_t communicator, const std::string& what,
                       const std::string& group, std::chrono::milliseconds timeout) {
  WaitClock clock(timeout);
  const Clock::time_point begun = Clock::now();
  int asks = 0;
  while (result == ncclInProgress && communicator != nullptr) {
    throw_if_aborted();
    const ncclResult_t asked = nccl_.async_error(communicator, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclInProgress) break;
    check(!clock.expired(), "after {}, NCCL has not completed {} in {}: another rank has not joined it",
          to_string(timeout), what, group);
    if (++asks < kAsks || Clock::now() - begun < kSpin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPoll);
  }
  if (result == ncclSuccess) return;
  fail("NCCL failed in {} in {} on {}: {} ({})", what, group, marks_->device_name(), nccl_.text(result),
       nccl_.last_error(communicator));
}

void NcclWorld::enqueue(const SharedHandle& handle, cudaStream_t stream, const std::string& what,
                        const std::function<ncclResult_t(ncclComm_t)>& call, Tickets tickets) {
  try {
    const Calling counted(*this);
    const std::lock_guard calling(handle->calling);
    throw_if_aborted();
    accept(call(handle->nccl), handle->nccl, what, handle->group, timeout_);
  } catch (const Error& error) {
    tell_and_abort(error);
    throw;
  }
  watch(handle, stream, what, std::move(tickets));
}

void NcclWorld::record_in(std::shared_ptr<FlightRecorder> recorder) {
  const std::lock_guard lock(mutex_);
  recorder_ = std::move(recorder);
}

cudaEvent_t NcclWorld::take_event() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return marks_->make();
  const cudaEvent_t event = spare_.back();
  spare_.pop_back();
  return event;
}

void NcclWorld::watch(const SharedHandle& handle, cudaStream_t stream, const std::string& what,
                      Tickets tickets) {
  const cudaEvent_t event = take_event();
  marks_->record(event, stream);
  {
    const std::lock_guard lock(mutex_);
    const auto limit = recorder_ ? recorder_->wait_limit(timeout_) : timeout_;
    (aborted_.load() ? given_up_ : pending_)
        .push_back({event, handle, WaitClock(limit), what, std::move(tickets)});
    throw_if_aborted();
  }
  changed_.notify_all();
}

// Describes what is wrong with an enqueued call; empty if nothing is.
std::string NcclWorld::trouble_with(Pending& pending) {
  // Callers on this communicator query NCCL too; two simultaneous queries would complete one job twice.
  if (const std::unique_lock calling(pending.handle->calling, std::try_to_lock);
      calling && pending.handle->nccl != nullptr) {
    const ncclComm_t communicator = pending.handle->nccl;
    ncclResult_t result = ncclSuccess;
    if (nccl_.async_error(communicator, &result) == ncclSuccess && result != ncclSuccess &&
        result != ncclInProgress)
      return fmt::format("{}: NCCL failed in {} in {}: {} ({})", this_rank(), pending.what,
                         pending.handle->group, nccl_.text(result), nccl_.last_error(communicator));
  }
  if (!pending.clock.expired()) return "";
  return fmt::format(
      "{} gave up after {} in {} in {}: another of these ranks died, hangs, or made another call",
      this_rank(), to_string(pending.clock.limit()), pending.what, pending.handle->group);
}

// The reason why another rank gave up; empty if none has. NCCL's kernels here would wait for that rank.
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

// Removes completed calls from pending_ and returns what is wrong with the others. mutex_ is held.
std::string NcclWorld::look() {
  std::string trouble;
  for (auto it = pending_.begin(); it != pending_.end() && trouble.empty();) {
    if (!marks_->passed(it->done)) {
      trouble = trouble_with(*it);
      ++it;
      continue;
    }
    for (const uint64_t ticket : it->tickets) recorder_->end(ticket);
    spare_.push_back(it->done);
    it = pending_.erase(it);
  }
  if (pending_.empty()) changed_.notify_all();  // `forget` waits for this
  return trouble;
}

void NcclWorld::watch_loop() {
  marks_->use();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !pending_.empty() || calling_ > 0; });
    if (stopping_) return;
    std::string trouble = look();
    lock.unlock();
    if (trouble.empty()) trouble = trouble_of_others();
    if (!trouble.empty()) abort(trouble);
    lock.lock();
    changed_.wait_for(lock, kLook, [this] { return stopping_; });
  }
}

void NcclWorld::forget(const SharedHandle& handle) noexcept {
  bool busy = false;
  {
    std::unique_lock lock(mutex_);
    if (std::uncaught_exceptions() > 0)
      busy = !pending_.empty() || calling_ > 0;
    else
      changed_.wait(lock, [this] { return aborted_.load() || pending_.empty(); });
    if (!busy && !aborted_.load()) std::erase(handles_, handle);
  }
  if (busy) return abort(this_rank() + " gave up while others still waited for it");
  const std::lock_guard calling(handle->calling);
  if (handle->nccl == nullptr) return;  // already aborted with the world
  marks_->use();
  static_cast<void>(nccl_.abort(handle->nccl));
  handle->nccl = nullptr;
}

void NcclWorld::abort(std::string_view why) noexcept {
  std::vector<SharedHandle> doomed;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    try {
      why_ = why;
    } catch (...) {  // no memory for the reason; waking the others matters more
    }
    aborted_.store(true);
    doomed.swap(handles_);
    given_up_.swap(pending_);
  }
  changed_.notify_all();
  host_.abort(why);  // first, to release the other ranks: the lines below may wait for this device
  for (const SharedHandle& handle : doomed) handle->calling.lock();  // threads that wait for one see aborted_
  marks_->use();
  // One group, so that NCCL stops all kernels before it waits for any of them.
  static_cast<void>(nccl_.group_start());
  for (const SharedHandle& handle : doomed)
    if (handle->nccl != nullptr) static_cast<void>(nccl_.abort(handle->nccl));
  static_cast<void>(nccl_.group_end());
  for (const SharedHandle& handle : doomed) {
    handle->nccl = nullptr;
    handle->calling.unlock();
  }
}

}  // namespace trifold::cuda
