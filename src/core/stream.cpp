#include "core/stream.h"

#include "core/error.h"
#include "core/host_thread.h"

namespace trifold {

namespace {

// Tasks that may wait on a Worker stream before its queue grows: the messages of a long step.
constexpr size_t kWaitingTasks = 256;

}  // namespace

Stream::Stream(Mode mode, ThreadPool& pool, Device* device, QueueUse use)
    : mode_(mode),
      pool_(pool),
      own_queue_(device != nullptr && mode != Mode::Dry ? device->make_queue(use) : nullptr),
      queue_(own_queue_.get()),
      tasks_(mode == Mode::Worker ? kWaitingTasks : 0) {
  if (mode == Mode::Worker) thread_ = std::thread([this] { work_loop(); });
}

Stream::Stream(ThreadPool& pool, WorkLog& log)
    : mode_(Mode::Dry), pool_(pool), log_(&log), number_(log.join()), tasks_(0) {}

Stream::~Stream() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::push(Task work) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push(std::move(work));
    ++pushed_;
  }
  changed_.notify_all();
}

void Stream::work_loop() {
  HostThread::here();  // allocated here, not by the first wait, which may be in the middle of a training step
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;  // stopping, and nothing is left
    Task work = tasks_.pop();
    const bool dropped = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!dropped) {
        work();
        if (queue_ != nullptr) queue_->synchronize();
      }
    } catch (...) {
      error = std::current_exception();
    }
    work.reset();  // without the lock: destructors of captured objects may use this stream
    lock.lock();
    if (error && !error_) error_ = error;
    ++done_;
    changed_.notify_all();
  }
}

Event Stream::record() {
  if (mode_ == Mode::Inline && queue_ != nullptr) return {this, queue_->record()};
  if (log_ != nullptr) return {this, log_->list().size()};
  if (mode_ != Mode::Worker) return {};
  const std::lock_guard lock(mutex_);
  return {this, pushed_};
}

void Stream::await(uint64_t ticket) {
  HeldUp waits;
  if (mode_ != Mode::Worker) return queue_->await(ticket);
  std::unique_lock lock(mutex_);
  check(done_ >= ticket || std::this_thread::get_id() != thread_.get_id(),
        "work on a stream waits for that stream to finish: it would wait for itself");
  do waits.look();
  while (!changed_.wait_for(lock, HostThread::kLook, [&] { return done_ >= ticket; }));
  const std::exception_ptr error = error_;
  lock.unlock();
  if (error) rethrow_copy(error);
}

void Stream::wait(const Event& event) {
  if (event.stream == nullptr || event.stream == this) return;
  if (log_ != nullptr) {
    Work work;
    work.name = "wait";
    work.kind = Work::Kind::Wait;
    work.other = event.stream->number_;
    work.until = event.ticket;
    return write_down(work);
  }
  if (mode_ == Mode::Dry) return;
  const bool on_device = event.stream->mode_ == Mode::Inline;  // only a device makes such an event
  if (mode_ == Mode::Inline && queue_ != nullptr && on_device)
    return queue_->wait(*event.stream->queue_, event.ticket);
  if (mode_ == Mode::Inline) return event.stream->await(event.ticket);
  push(Task([event] { event.stream->await(event.ticket); }));
}

void Stream::synchronize() {
  if (mode_ == Mode::Worker) return await(record().ticket);
  const HeldUp waits;
  if (queue_ != nullptr) queue_->synchronize();
}

}  // namespace trifold
