#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "core/error.h"

namespace trifold {

ThreadPool::ThreadPool(int size) : size_(size), parts_(static_cast<size_t>(std::max(size, 1))) {
  check(size >= 1, "a thread pool needs at least one worker, not {}", size);
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
  stopping_.store(true);
  generation_.fetch_add(1);
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Claims the worker's part in this generation for the calling thread; false if another thread has claimed it. A
// generation does not end before each of its parts is claimed, so a late worker finds a higher generation here.
bool ThreadPool::take(int worker, uint64_t generation) {
  uint64_t last = generation - 1;
  return parts_[static_cast<size_t>(worker)].taken.compare_exchange_strong(last, generation);
}

void ThreadPool::call(int worker) {
  try {
    (*body_)(worker);
  } catch (...) {
    parts_[static_cast<size_t>(worker)].error = std::current_exception();
  }
  if (pending_.fetch_sub(1) == 1) ended_.notify_all();
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  if (size_ == 1) return body(0);
  check(!running_.exchange(true, std::memory_order_acquire),
        "a thread pool was asked to run while it runs: two threads share it, or work on it asks for more");
  body_ = &body;
  pending_.store(size_, std::memory_order_relaxed);
  const uint64_t generation = generation_.fetch_add(1) + 1;
  called_.notify_all();
  call(0);
  for (int worker = 1; worker < size_; ++worker)
    if (take(worker, generation)) call(worker);
  ended_.wait([&] { return pending_.load() == 0; });
  const std::exception_ptr error = take_error();
  running_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

std::exception_ptr ThreadPool::take_error() {
  std::exception_ptr first;
  for (Part& part : parts_) {
    if (part.error && !first) first = part.error;
    part.error = nullptr;  // a kept error would be rethrown by the next call, which did not cause it
  }
  return first;
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  while (true) {
    called_.wait([&] { return generation_.load() != seen; });
    seen = generation_.load();
    if (stopping_.load()) return;
    if (take(worker, seen)) call(worker);
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  check(grain >= 1, "work is split into parts of {} elements; at least 1 is needed", grain);
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
