#include "support/ranks.h"

#include <condition_variable>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/thread_comm.h"

namespace trifold::test {

namespace {

// Says once what every rank waits for, when the run takes too long. It only reports: time-outs end the run.
class Watchdog {
 public:
  Watchdog(const ThreadWorld& world, std::chrono::milliseconds limit)
      : thread_([this, &world, limit] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, limit, [this] { return done_; }))
            std::cerr << "run_ranks: not done after " << limit.count() << " ms:\n"
                      << world.status() << std::endl;
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

void run_ranks(int count, const std::function<void(Communicator&)>& rank_main, const RanksOptions& options) {
  ThreadWorld world(count, options.timeout, options.ops == nullptr ? cpu_ops() : *options.ops);
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep = [&](std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (!first) first = error;
  };
  {
    const Watchdog watchdog(world, options.watchdog);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank)
      threads.emplace_back([&, rank] {
        const auto comm = world.join(rank);
        try {
          rank_main(*comm);
        } catch (const std::exception& error) {
          keep(std::current_exception());
          world.abort(error.what());
        } catch (...) {
          keep(std::current_exception());
          world.abort("a rank threw something that is not an exception");
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace trifold::test
