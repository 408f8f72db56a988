// HostThread records whether the thread that runs a rank is blocked: by other ranks, by streams that may wait for them,
// by the disk, or by data that are late. If the thread is not blocked, or if it is stopped (SIGSTOP, a debugger), the
// rank is a straggler that others wait for. A thread that waits by polling is stopped if it has not polled for a while.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/clock.h"

namespace trifold {

struct HostThread {
  // Something outside of the run for which a thread waits.
  struct Outside {
    std::string what;  // "the disk to write d/shard"
    Clock::time_point since;
  };

  std::atomic<int> waits{0};  // current waits for other ranks or for streams
  // Nanoseconds for which the thread has been blocked so far, up to the end of its last wait.
  std::atomic<int64_t> blocked_ns{0};
  std::atomic<std::thread::id> saver{};  // the thread that saves for this rank in the background, if any

  // The longest time between two polls of a wait that reports them (HeldUp::look).
  static constexpr std::chrono::milliseconds kLook{100};
  // Seconds since the last poll if that is so long that the thread is stopped; otherwise 0.
  double stopped() const {
    const Clock::rep last = looked_.load(std::memory_order_relaxed);
    const auto gap = Clock::now() - Clock::time_point(Clock::duration(last));
    return last != 0 && gap > 10 * kLook ? std::chrono::duration<double>(gap).count() : 0;
  }

  // What the rank's thread, or its background saver, waits for.
  std::optional<Outside> outside() const { return read(own_); }
  std::optional<Outside> saver_outside() const { return read(of_saver_); }

  // The HostThread of the calling thread.
  static const std::shared_ptr<HostThread>& here() {
    static thread_local const std::shared_ptr<HostThread> kMine = std::make_shared<HostThread>();
    return kMine;
  }

 private:
  friend class OutsideWait;
  friend class HeldUp;
  friend class SavesFor;

  // The HostThread of the rank that the calling thread saves for; by default its own.
  static std::shared_ptr<HostThread>& served() {
    static thread_local std::shared_ptr<HostThread> rank = here();
    return rank;
  }
  std::optional<Outside> read(const std::optional<Outside>& slot) const {
    const std::lock_guard lock(mutex_);
    return slot;
  }

  mutable std::mutex mutex_;
  std::optional<Outside> own_, of_saver_;
  std::atomic<Clock::rep> looked_{
      0};  // time of the blocked thread's last poll; 0: the wait does not report polls
};

// Scope guard: marks `thread` as blocked. Null marks no thread.
class HeldUp {
 public:
  explicit HeldUp(HostThread* thread = HostThread::here().get()) : thread_(thread) {
    if (thread_ != nullptr && thread_->waits.fetch_add(1, std::memory_order_relaxed) == 0)
      begun_ = Clock::now();
  }
  ~HeldUp() {
    if (thread_ == nullptr) return;
    thread_->looked_.store(0, std::memory_order_relaxed);
    if (thread_->waits.fetch_sub(1, std::memory_order_relaxed) > 1) return;  // inside another wait
    const std::chrono::nanoseconds blocked = Clock::now() - begun_;
    thread_->blocked_ns.fetch_add(blocked.count(), std::memory_order_relaxed);
  }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

  // Reports a poll. After the first call, the next ones must follow within HostThread::kLook.
  void look() {
    if (thread_ != nullptr)
      thread_->looked_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  HostThread* thread_;
  Clock::time_point begun_;  // when the outermost wait began
};

// Scope guard: the calling thread saves for the rank that runs on thread `rank`.
class SavesFor {
 public:
  explicit SavesFor(std::shared_ptr<HostThread> rank)
      : before_(std::exchange(HostThread::served(), std::move(rank))) {
    HostThread::served()->saver.store(std::this_thread::get_id());
  }
  ~SavesFor() {
    HostThread::served()->saver.store({});
    HostThread::served() = std::move(before_);
  }
  SavesFor(const SavesFor&) = delete;
  SavesFor& operator=(const SavesFor&) = delete;

 private:
  std::shared_ptr<HostThread> before_;
};

// Scope guard: the calling thread waits for something outside of the run. A thread has at most one at a time.
class OutsideWait {
 public:
  explicit OutsideWait(std::string what) { set(HostThread::Outside{std::move(what), Clock::now()}); }
  ~OutsideWait() { set(std::nullopt); }
  OutsideWait(const OutsideWait&) = delete;
  OutsideWait& operator=(const OutsideWait&) = delete;

 private:
  static void set(std::optional<HostThread::Outside> outside) {
    HostThread& rank = *HostThread::served();
    const bool is_own = &rank == HostThread::here().get();
    const std::lock_guard lock(rank.mutex_);
    (is_own ? rank.own_ : rank.of_saver_) = std::move(outside);
  }
};

// The wait for the disk to write `file`.
class DiskWait {
 public:
  explicit DiskWait(const std::string& file) : wait_("the disk to write " + file) {}

 private:
  OutsideWait wait_;
};

}  // namespace trifold
