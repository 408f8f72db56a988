// ThreadPool: the processor cores of one rank. The caller is one of the workers, so a pool of size 1 starts
// no thread.
//
// Work is split statically: worker w of n always gets the same part, so a result never depends on timing.
// Idle workers spin for some microseconds (a training step enqueues thousands of small operations) and then
// sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "core/function_ref.h"

namespace trifold {

class ThreadPool {
 public:
  // `size` workers in all, at least 1. Only one thread at a time may call `run`, and a body must not call it
  // again: in a pool of more than one worker both are an Error.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls body(worker) once on every worker and returns when all have returned; rethrows the exception of the
  // lowest worker that threw and drops the others.
  void run(FunctionRef<void(int worker)> body);

  // Splits [0, count) into one contiguous part per worker, each but the last a multiple of `grain` >= 1, and
  // calls body(begin, end) for every part that is not empty. Runs on the caller alone if count <= grain.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  void work(int worker);
  void call(int worker);
  void stop();
  std::exception_ptr take_error();

  int size_;
  FunctionRef<void(int)>* body_ = nullptr;
  std::vector<std::exception_ptr> errors_;
  std::atomic<uint32_t> generation_{0};  // counts calls of run(); workers wait for the next
  std::atomic<uint32_t> pending_{0};     // workers that have not finished the current call
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};  // a call of run() is under way
  std::vector<std::thread> threads_;
};

// The cores this process may use (its affinity mask), at least 1.
int available_cores();

}  // namespace trifold
