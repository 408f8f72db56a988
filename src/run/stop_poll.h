// StopPoll: during long work of many rounds, whether a signal has asked some rank to stop. The ranks talk
// about it about once a second only, in rounds they all agree on, so that it costs next to nothing and all
// leave the work in the same round.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "comm/communicator.h"
#include "core/clock.h"
#include "core/function_ref.h"

namespace trifold {

class StopPoll {
 public:
  // Without a signal nobody is asked. References must outlive it.
  StopPoll(Communicator& world, Stream& stream, const std::atomic<int>* signal);

  // Collective: every rank calls it before each of its rounds, and all have as many, those without work too.
  // True from the round on in which they stop.
  bool stops();
  // What stops() said last.
  bool stopped() const { return stopped_; }

 private:
  Communicator& world_;
  Stream& stream_;
  const std::atomic<int>* signal_;
  Clock::time_point last_ = Clock::now();  // when they talked
  int64_t last_round_ = 0;                 // the round in which they did
  int64_t next_ = 0;                       // and in which they do again
  int64_t round_ = 0;
  bool stopped_ = false;
};

// Collective: whether a signal has come to some rank. The same answer on all of them.
bool any_signal(Communicator& world, Stream& stream, const std::atomic<int>& signal);

// Collective: asks `is_ready(patience)` (DataSource::make_ready) again and again until it is true on every
// rank. False, on all, once a signal has come to some rank before that. True after ten minutes as well: the
// read that follows then waits, and its error names the data.
bool wait_until_ready(Communicator& world, Stream& stream, const std::atomic<int>& signal,
                      FunctionRef<bool(std::chrono::milliseconds)> is_ready);

}  // namespace trifold
