#include "run/health/slow_ranks.h"

#include "core/host_thread.h"
#include "run/health/incidents.h"

namespace trifold {

namespace {

int64_t blocked_ns_here() { return HostThread::here()->blocked_ns.load(std::memory_order_relaxed); }

}  // namespace

SlowRanks::SlowRanks(Communicator& world, int64_t interval, std::vector<int> groups, SaveObserver* observer)
    : observer_(observer) {
  if (interval > 0 && world.size() > 1) stragglers_.emplace(world, interval, std::move(groups));
}

void SlowRanks::begin_step() {
  blocked_ns_ = blocked_ns_here();
  begun_ = Clock::now();
}

void SlowRanks::end_step(int64_t step) {
  if (!stragglers_) return;
  const int64_t blocked = blocked_ns_here() - blocked_ns_;
  for (const SlowRank& rank :
       stragglers_->add(step, seconds_since(begun_) - 1e-9 * static_cast<double>(blocked)))
    if (observer_ != nullptr) observer_->on_incident(incident_of(rank));
}

}  // namespace trifold
