// run_ranks: runs a function on n ranks that are threads of this process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace trifold::test {

struct RanksOptions {
  std::chrono::milliseconds timeout{20'000};  // of every wait inside the world
  std::chrono::milliseconds watchdog{
      30'000};                   // after this a report on what each rank waits for goes to stderr
  const OpTable* ops = nullptr;  // of the device whose tensors they share; null: of none
};

// Calls rank_main(comm) on `count` threads, one per rank, and returns when all have returned. The first
// exception aborts the world, so the other ranks do not wait in vain, and is rethrown here; theirs are
// dropped.
void run_ranks(int count, const std::function<void(Communicator&)>& rank_main,
               const RanksOptions& options = {});

// A stream with cores of its own.
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
