// StopPoll checks, during work of many rounds, whether a signal has asked some rank to stop. The ranks communicate only
// about once a second, in rounds on which they all agree, so the cost is negligible and all stop in the same round.
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
  // With a null signal it never stops. References must outlive this object.
  StopPoll(Communicator& world, Stream& stream, const std::atomic<int>* signal);

  // Collective: every rank calls it before each of its rounds, equally often, even without work. True from the round in
  // which all ranks stop.
  bool stops();
  // The last result of stops().
  bool stopped() const { return stopped_; }

 private:
  Communicator& world_;
  Stream& stream_;
  const std::atomic<int>* signal_;
  Clock::time_point last_ = Clock::now();  // time of the last communication
  int64_t last_round_ = 0;                 // round of the last communication
  int64_t next_ = 0;                       // round of the next communication
  int64_t round_ = 0;
  bool stopped_ = false;
};

// Collective: whether some rank has received a signal; the same on all ranks.
bool any_signal(Communicator& world, Stream& stream, const std::atomic<int>& signal);

// Collective: calls `is_ready(patience)` (DataSource::make_ready) until it is true on every rank. False on all ranks if
// a signal reaches one of them first. Also true after ten minutes: the following read then waits, and its error names
// the data.
bool wait_until_ready(Communicator& world, Stream& stream, const std::atomic<int>& signal,
                      FunctionRef<bool(std::chrono::milliseconds)> is_ready);

}  // namespace trifold
