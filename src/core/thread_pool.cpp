#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "core/error.h"

namespace trifold {

namespace {

// Longer than the gap between two operations of a step, too short to be noticed. A duration instead of a
// count, because a pause takes 10 to 50 nanoseconds, depending on the processor.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerLook = 16;  // between two looks at the clock

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` differs from `old`: first by spinning, then by sleeping.
void await_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() - begin < kSpin);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int size) : size_(size) {
  check(size >= 1, "a thread pool needs at least one worker, not {}", size);
  errors_.resize(static_cast<size_t>(size));
  threads_.reserve(static_cast<size_t>(size - 1));
  try {
    for (int worker = 1; worker < size; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    stop();  // the destructor of an object whose constructor throws does not run
    fail("only {} of the {} workers of a thread pool could be started: {}", threads_.size() + 1, size,
         error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::call(int worker) {
  try {
    (*body_)(worker);
  } catch (...) {
    errors_[static_cast<size_t>(worker)] = std::current_exception();
  }
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  if (size_ == 1) return body(0);
  check(!running_.exchange(true, std::memory_order_acquire),
        "a thread pool was asked to run while it runs: two threads share it, or work on it asks for more");
  body_ = &body;
  pending_.store(static_cast<uint32_t>(size_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  call(0);
  for (uint32_t left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire))
    await_change(pending_, left);
  const std::exception_ptr error = take_error();
  running_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

std::exception_ptr ThreadPool::take_error() {
  std::exception_ptr first;
  for (std::exception_ptr& error : errors_) {
    if (error && !first) first = error;
    error = nullptr;  // a kept error would be rethrown by the next call, which did not cause it
  }
  return first;
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  while (true) {
    await_change(generation_, seen);
    ++seen;
    if (stopping_.load(std::memory_order_acquire)) return;
    call(worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_all();
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  check(grain >= 1, "work cannot be split into parts of {} elements", grain);
  if (count <= 0) return;
  if (size_ == 1 || count <= grain) return body(0, count);
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t part = (grains + size_ - 1) / size_ * grain;
  run([&](int worker) {
    const int64_t begin = std::min(count, worker * part);
    const int64_t end = std::min(count, begin + part);
    if (begin < end) body(begin, end);
  });
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace trifold
