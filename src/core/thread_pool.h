// ThreadPool: the processor cores of one rank. The caller is one of the workers, so a pool of size 1 starts
// no thread.
//
// Work is split into one part per worker, with bounds that depend on the number of workers only, so a result never
// depends on timing. When the caller has finished its part, it computes the parts of workers that have not begun, so
// that a worker that is not scheduled does not delay the others. Idle workers wait as SpinCondition does.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "core/function_ref.h"
#include "core/spin_condition.h"

namespace trifold {

class ThreadPool {
 public:
  // `size` workers, at least 1, including the caller. Only one thread at a time may call `run`, and a body must not
  // call it: in a pool of more than one worker both are an Error. A body must not wait for the body of another worker.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls body(worker) once for every worker and returns when all calls have returned; rethrows the exception of the
  // lowest worker whose call threw and drops the others.
  void run(FunctionRef<void(int worker)> body);

  // Splits [0, count) into one contiguous part per worker, each but the last a multiple of `grain` >= 1, and
  // calls body(begin, end) for every part that is not empty. Runs on the caller alone if count <= grain.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  // The part of one worker.
  struct Part {
    std::atomic<uint64_t> taken{0};  // the last generation in which a thread began it
    std::exception_ptr error;
  };

  void work(int worker);
  bool take(int worker, uint64_t generation);
  void call(int worker);
  void stop();
  std::exception_ptr take_error();

  int size_;
  FunctionRef<void(int)>* body_ = nullptr;
  std::vector<Part> parts_;
  std::atomic<uint64_t> generation_{0};  // counts calls of run(); workers wait for the next
  std::atomic<int> pending_{0};          // parts of the current call that have not ended
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};  // a call of run() is in progress
  SpinCondition called_, ended_;
  std::vector<std::thread> threads_;
};

// The cores this process may use (its affinity mask), at least 1.
int available_cores();

}  // namespace trifold
