#include "run/stop_poll.h"

#include <algorithm>

namespace trifold {

namespace {

constexpr double kEvery = 1;       // seconds
constexpr double kPatience = 600;  // seconds

}  // namespace

StopPoll::StopPoll(Communicator& world, Stream& stream, const std::atomic<int>* signal)
    : world_(world), stream_(stream), signal_(signal) {}

// Rank 0's clock decides when all ranks communicate next: summed with zeros it is the same value on every rank. The
// number of rounds in between at most doubles, because a round may have been short by chance.
bool StopPoll::stops() {
  if (signal_ == nullptr || stopped_) return stopped_;
  if (round_++ < next_) return false;
  const auto rounds = static_cast<double>(next_ - last_round_);
  double sums[] = {signal_->load() != 0 ? 1.0 : 0.0, 0};
  if (world_.rank() == 0 && rounds > 0)
    sums[1] = std::min(rounds * kEvery / std::max(seconds_since(last_), 1e-6), 2 * rounds);
  Stream host = stream_.host();
  world_.all_reduce({sums, DType::F64, {2}}, Reduce::Sum, host);
  stopped_ = sums[0] > 0;
  last_ = Clock::now();
  last_round_ = next_;
  next_ += std::max<int64_t>(1, static_cast<int64_t>(sums[1]));
  return stopped_;
}

bool any_signal(Communicator& world, Stream& stream, const std::atomic<int>& signal) {
  double asked = signal.load() != 0 ? 1 : 0;
  Stream host = stream.host();
  world.all_reduce({&asked, DType::F64, {1}}, Reduce::Sum, host);
  return asked > 0;
}

bool wait_until_ready(Communicator& world, Stream& stream, const std::atomic<int>& signal,
                      FunctionRef<bool(std::chrono::milliseconds)> is_ready) {
  const auto start = Clock::now();
  Stream host = stream.host();
  while (true) {
    const bool waits = !is_ready(std::chrono::milliseconds(500)) && seconds_since(start) < kPatience;
    double sums[] = {waits ? 1.0 : 0.0, signal.load() != 0 ? 1.0 : 0.0};
    world.all_reduce({sums, DType::F64, {2}}, Reduce::Sum, host);
    if (sums[0] == 0) return true;
    if (sums[1] > 0) return false;
  }
}

}  // namespace trifold
