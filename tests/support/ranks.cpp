#include "support/ranks.h"

#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/thread_comm.h"
#include "core/watchdog.h"

namespace trifold::test {

void run_ranks(int count, const std::function<void(Communicator&)>& rank_main, const RanksOptions& options) {
  ThreadWorld world(count, options.timeout, options.ops == nullptr ? cpu_ops() : *options.ops);
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep = [&](std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (!first) first = error;
  };
  {
    // It only reports: time-outs end the run.
    const Watchdog watchdog(options.watchdog, [&] {
      std::cerr << "run_ranks: not done after " << options.watchdog.count() << " ms:\n"
                << world.status() << std::endl;
    });
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
