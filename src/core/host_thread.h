// HostThread says whether the thread that runs a rank is blocked: by other ranks, by streams that may wait
// for them, or by the disk. If it is not blocked, the rank is the straggler that the others wait for,
// whatever its streams do. So it is if the thread should look now and then whether it may go on, and does not: it
// is stopped.
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
  // A file whose writing to disk a thread waits for.
  struct Writing {
    std::string file;
    Clock::time_point since;
  };

  std::atomic<int> waits{0};             // waits for other ranks or for streams
  std::atomic<std::thread::id> saver{};  // the thread that saves for this rank in the background, if any

  // The time between two looks, at most, of a wait that notes them.
  static constexpr std::chrono::milliseconds kLook{100};
  // How long the thread has not looked, in seconds; 0 unless that is so long that it does not run.
  double stopped() const {
    const Clock::rep last = looked_.load(std::memory_order_relaxed);
    const auto gap = Clock::now() - Clock::time_point(Clock::duration(last));
    return last != 0 && gap > 10 * kLook ? std::chrono::duration<double>(gap).count() : 0;
  }

  // The file that the rank's thread, or its background saver, waits for.
  std::optional<Writing> writing() const { return read(own_); }
  std::optional<Writing> saver_writing() const { return read(of_saver_); }

  // The HostThread of the calling thread.
  static const std::shared_ptr<HostThread>& here() {
    static thread_local const std::shared_ptr<HostThread> kMine = std::make_shared<HostThread>();
    return kMine;
  }

 private:
  friend class DiskWait;
  friend class HeldUp;
  friend class SavesFor;

  // The HostThread of the rank that the calling thread saves for; by default its own.
  static std::shared_ptr<HostThread>& served() {
    static thread_local std::shared_ptr<HostThread> rank = here();
    return rank;
  }
  std::optional<Writing> read(const std::optional<Writing>& slot) const {
    const std::lock_guard lock(mutex_);
    return slot;
  }

  mutable std::mutex mutex_;
  std::optional<Writing> own_, of_saver_;
  std::atomic<Clock::rep> looked_{0};  // when the blocked thread last looked; 0: this wait does not note it
};

// Marks `thread` as blocked while it lives; null marks none.
class HeldUp {
 public:
  explicit HeldUp(HostThread* thread = HostThread::here().get()) : thread_(thread) {
    if (thread_ != nullptr) thread_->waits.fetch_add(1, std::memory_order_relaxed);
  }
  ~HeldUp() {
    if (thread_ == nullptr) return;
    thread_->looked_.store(0, std::memory_order_relaxed);
    thread_->waits.fetch_sub(1, std::memory_order_relaxed);
  }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

  // Notes that the thread looks whether it may go on. After the first call others must follow within HostThread::kLook.
  void look() {
    if (thread_ != nullptr)
      thread_->looked_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  HostThread* thread_;
};

// While it lives, the calling thread saves for the rank of thread `rank`.
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

// While it lives, the calling thread waits for the disk to write `file`. A thread has at most one at a time.
class DiskWait {
 public:
  explicit DiskWait(const std::string& file) { set(HostThread::Writing{file, Clock::now()}); }
  ~DiskWait() { set(std::nullopt); }
  DiskWait(const DiskWait&) = delete;
  DiskWait& operator=(const DiskWait&) = delete;

 private:
  static void set(std::optional<HostThread::Writing> writing) {
    HostThread& rank = *HostThread::served();
    const bool is_own = &rank == HostThread::here().get();
    const std::lock_guard lock(rank.mutex_);
    (is_own ? rank.own_ : rank.of_saver_) = std::move(writing);
  }
};

}  // namespace trifold
