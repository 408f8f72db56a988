// run_ranks: runs a function on n ranks that are threads of this process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace trifold::test {

struct RanksOptions {
  std::chrono::milliseconds timeout{20'000};  // time-out of every wait inside the world
  // After this time, the waits of all ranks are printed to stderr.
  std::chrono::milliseconds watchdog{30'000};
  const OpTable* ops = nullptr;  // table of the device that the ranks share; null: the host
};

// Calls rank_main(comm) on `count` threads, one per rank, and returns when all have returned. The first
// exception aborts the world, so that the other ranks do not wait, and is rethrown here; other exceptions are dropped.
void run_ranks(int count, const std::function<void(Communicator&)>& rank_main,
               const RanksOptions& options = {});

// A stream with its own cores.
class OwnStream {
 public:
  explicit OwnStream(Stream::Mode mode = Stream::Mode::Inline, int threads = 1)
      : pool_(threads), stream_(mode, pool_) {}
  operator Stream&() { return stream_; }
  Stream& get() { return stream_; }

 private:
  ThreadPool pool_;
  Stream stream_;
};

}  // namespace trifold::test
