#include "data/slot_reader.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_thread.h"
#include "core/wait_clock.h"

namespace trifold {

namespace {

// Far below the time-outs of ranks, which ask each other what they wait for.
constexpr std::chrono::milliseconds kUnmarked{100};

}  // namespace

SlotReader::SlotReader(int64_t count, int held, int ahead, std::function<void(int64_t)> fill,
                       std::function<std::string(int64_t)> describe)
    : count_(count),
      held_(held),
      slots_(held + ahead),
      fill_(std::move(fill)),
      describe_(std::move(describe)) {
  check(held >= 1 && ahead >= 1, "read-ahead needs at least one batch held and one ahead, not {} and {}",
        held, ahead);
  check(count >= 0, "read-ahead of {} batches: at least 0 are needed", count);
  thread_ = std::thread([this] { read_loop(); });
}

SlotReader::~SlotReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Item i may overwrite its slot once item i - slots is no longer in use: when `held` later items were taken.
void SlotReader::read_loop() {
  for (int64_t i = 0; i < count_; ++i) {
    {
      std::unique_lock lock(mutex_);
      const int64_t free_from = i - slots_ + 1 + held_;
      // No time-out is needed: the destructor of this object, which owns the thread, ends the wait.
      changed_.wait(lock, [&] { return stopping_ || taken_ >= free_from; });
      if (stopping_) return;
    }
    std::exception_ptr error;
    try {
      fill_(i);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error) {
        error_ = error;
      } else {
        ++read_;
      }
    }
    changed_.notify_all();
    if (error) return;
  }
}

int64_t SlotReader::get(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  check(taken_ < count_, "all {} micro-batches have been read already", count_);
  const auto is_there = [&] { return read_ > taken_ || error_; };
  // Others learn of a wait only once it is long: most last microseconds, and the text needs memory.
  bool came = wait_for(changed_, lock, std::min(timeout, kUnmarked), is_there);
  if (!came && timeout > kUnmarked) {
    const OutsideWait marked(describe_(taken_) + " to be read");
    came = wait_for(changed_, lock, timeout - kUnmarked, is_there);
  }
  if (!came) fail("reading {} takes longer than {} ms", describe_(taken_), timeout.count());
  if (read_ == taken_) std::rethrow_exception(error_);
  const int64_t index = taken_++;
  lock.unlock();
  changed_.notify_all();
  return index;
}

}  // namespace trifold
