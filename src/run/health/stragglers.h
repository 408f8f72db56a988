// Stragglers finds ranks that are slower than the others at equal work.
//
// In synchronous training every step takes as long as its slowest rank, so that the time of a step says nothing about a
// rank. What counts is a rank's own time: the time of its step without the time for which it was blocked by other ranks
// (core/host_thread.h). Every `interval` steps the ranks exchange their own times of these steps. A rank is slow if it
// took more than kTimes its peers' median in kSlow of the last kWindow steps, and kLeastSeconds more in all, so that
// load that moves from core to core, or one slow disk access, is no alarm.
//
// Peers are the ranks with the same number in `groups`, which do equal work. A rank without peers is compared with
// what it took at first, relative to the others then. Ranks whose work depends on data, such as ranks with experts, may be
// slow because they have more to do.
//
// On a GPU the host only enqueues work, so that own times are times of the host.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trifold {

// A rank that has become slow, or has become as fast as its peers again.
struct SlowRank {
  int64_t step = 0;
  int rank = 0;
  std::string process;  // "host a, pid 12"
  bool is_slow = true;
  double times = 0;    // its own time over what its peers take
  double seconds = 0;  // the median of its own times
};

class Stragglers {
 public:
  static constexpr double kTimes = 1.3;
  static constexpr size_t kWindow = 16;
  static constexpr size_t kSlow = 13;
  static constexpr double kLeastSeconds = 0.1;
  static constexpr size_t kWarmUp = 4;  // steps that are not counted: they allocate memory, and measure

  // `groups` has a number for each rank of the world. `world` must outlive this object.
  Stragglers(Communicator& world, int64_t interval, std::vector<int> groups);

  // Adds this rank's own time of a step. Every `interval` steps it is collective; returns what has changed, the same on
  // all ranks.
  std::vector<SlowRank> add(int64_t step, double own_seconds);

 private:
  using Times = std::vector<double>;  // times of one step, by rank

  // Each rank's own time in a step over what its peers take.
  std::vector<double> compare(const Times& times) const;
  void take(const Times& times);

  Communicator& world_;
  size_t interval_;
  std::vector<int> groups_;
  bool has_lonely_ranks_ = false;
  size_t steps_ = 0;
  Times mine_;                                // since the last exchange
  std::vector<Times> first_;                  // the first kWindow steps, for ranks without peers
  Times usual_;                               // their medians, by rank
  std::deque<std::vector<double>> compared_;  // the last kWindow steps, by rank
  std::deque<Times> last_;                    // the last kWindow steps
  std::vector<bool> slow_;                    // by rank
};

}  // namespace trifold
