// Stream and Event: an in-order queue of work on one device, and a point in that queue others can wait for.
//
// This is the only way to order work; there is no default stream. Every call that enqueues takes a Stream&.
// On the CPU a stream comes in three modes:
//   Inline  work runs at once on the calling thread (a rank's compute stream);
//   Worker  work runs in order on a thread the stream owns (communication): it overlaps as on a GPU;
//   Dry     work is dropped: a step is walked to compute its shapes and, with measuring arenas, its memory; with a log
//           (core/work_log.h) also its work.
// A stream of a device (core/device.h) also has a queue there. Arithmetic is enqueued on that queue
// (`enqueue`) and runs asynchronously, on an Inline stream too, so callers synchronize before they read
// results. Host work (`run`) on it first waits for the queue. A Worker stream waits for its queue after every
// piece of work, so its events cover both.
//
// An exception in a Worker stream's work is kept and later work is dropped; `synchronize` and every wait for
// one of the stream's events rethrow it, each as an Error of its own that the caller may add context to.
// Enqueueing allocates only when the queue grows past its previous peak.
// Waits here have no time-out of their own: work only waits for work enqueued earlier, so there is no cycle,
// and waits inside work (for other ranks) have one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core/device.h"
#include "core/task.h"
#include "core/thread_pool.h"
#include "core/work_log.h"

namespace trifold {

class Stream;

// All work that was enqueued on `stream` before ticket `ticket` was drawn. A default Event is complete.
struct Event {
  Stream* stream = nullptr;  // must outlive the event
  uint64_t ticket = 0;
};

class Stream {
 public:
  enum class Mode { Inline, Worker, Dry };

  // `pool` gives the work its cores; it must outlive the stream, and is used by this stream alone when the
  // mode is Worker. With a `device`, which must outlive it too, the stream has a queue there, for `use`; a
  // Dry stream needs none.
  Stream(Mode mode, ThreadPool& pool, Device* device = nullptr, QueueUse use = QueueUse::Computing);
  // A Dry stream that appends its work to `log`, which must outlive it.
  Stream(ThreadPool& pool, WorkLog& log);
  // Runs the work that is still enqueued and drops its errors; call `synchronize` first to get them.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Mode mode() const { return mode_; }
  ThreadPool& pool() const { return pool_; }
  // The log of a Dry stream; null if it has none.
  WorkLog* log() const { return log_; }
  // Appends work of this stream to its log, which must exist.
  void write_down(Work work) {
    work.stream = number_;
    log_->add(work);
  }
  // The queue on the stream's device, or null: the host is the device.
  DeviceQueue* queue() const { return queue_; }

  // An Inline stream over the same pool for tensors on the host, such as values that the host has read from a device.
  Stream host() const { return Stream(pool_, nullptr); }
  // For work of this stream that itself calls operations: an Inline stream over the same pool and queue. Work
  // that it enqueues on a device precedes everything that is enqueued after this work.
  Stream inner() const { return Stream(pool_, queue_); }

  // Enqueues `work`, a callable without arguments. Everything it refers to must live until it has run; what
  // it owns is destroyed before its completion can be observed.
  template <class Work>
  void run(Work&& work) {
    if (mode_ == Mode::Inline) {
      if (queue_ != nullptr) queue_->synchronize();
      return work();
    }
    if (mode_ == Mode::Worker) push(Task(std::forward<Work>(work)));
  }

  // Runs work that only enqueues more work on `queue()`: unlike `run`, does not wait for that queue.
  template <class Work>
  void enqueue(Work&& work) {
    if (mode_ == Mode::Inline) return work();
    if (mode_ == Mode::Worker) push(Task(std::forward<Work>(work)));
  }

  Event record();
  // Work enqueued on this stream from now on starts after `event` is complete.
  void wait(const Event& event);
  // Blocks the caller until all enqueued work has run; rethrows the first exception of a Worker stream, and
  // errors of the device.
  // Calling it from work of the same stream is an Error, because that work would wait for itself.
  void synchronize();

 private:
  Stream(ThreadPool& pool, DeviceQueue* queue) : mode_(Mode::Inline), pool_(pool), queue_(queue), tasks_(0) {}
  void push(Task work);
  void work_loop();
  void await(uint64_t ticket);

  Mode mode_;
  ThreadPool& pool_;
  std::unique_ptr<DeviceQueue> own_queue_;
  DeviceQueue* queue_ = nullptr;
  WorkLog* log_ = nullptr;
  int number_ = 0;  // the stream's index in the log
  std::mutex mutex_;
  std::condition_variable changed_;
  TaskQueue tasks_;
  uint64_t pushed_ = 0;  // tickets drawn
  uint64_t done_ = 0;    // tickets whose work has run or was dropped
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace trifold
