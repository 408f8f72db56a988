#include "run/health/stragglers.h"

#include <algorithm>
#include <utility>

#include "checkpoint/collective.h"
#include "comm/rank_report.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace trifold {

namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Stragglers::Stragglers(Communicator& world, int64_t interval, std::vector<int> groups)
    : world_(world),
      interval_(static_cast<size_t>(interval)),
      groups_(std::move(groups)),
      slow_(static_cast<size_t>(world.size())) {
  if (groups_.empty()) groups_.assign(slow_.size(), 0);
  check(groups_.size() == slow_.size(), "{} groups are named for {} ranks", groups_.size(), slow_.size());
  for (const int group : groups_)
    has_lonely_ranks_ = has_lonely_ranks_ || std::count(groups_.begin(), groups_.end(), group) == 1;
}

std::vector<double> Stragglers::compare(const Times& times) const {
  std::vector<double> ratios;
  for (size_t rank = 0; rank < times.size(); ++rank) {
    Times peers, others;
    for (size_t other = 0; other < times.size(); ++other) {
      if (other == rank) continue;
      if (groups_[other] == groups_[rank]) peers.push_back(times[other]);
      if (!usual_.empty()) others.push_back(times[other] / usual_[other]);
    }
    double expected = median_of(peers);
    if (peers.empty()) expected = usual_.empty() ? 0 : usual_[rank] * median_of(others);
    ratios.push_back(expected > 0 ? times[rank] / expected : 1);
  }
  return ratios;
}

void Stragglers::take(const Times& times) {
  if (has_lonely_ranks_ && usual_.empty()) {
    first_.push_back(times);
    if (first_.size() == kWindow)
      for (size_t rank = 0; rank < times.size(); ++rank) {
        Times own;
        for (const Times& step : first_) own.push_back(step[rank]);
        usual_.push_back(std::max(median_of(std::move(own)), 1e-9));
      }
  }
  compared_.push_back(compare(times));
  last_.push_back(times);
  if (compared_.size() <= kWindow) return;
  compared_.pop_front();
  last_.pop_front();
}

std::vector<SlowRank> Stragglers::add(int64_t step, double own_seconds) {
  if (++steps_ <= kWarmUp) return {};
  mine_.push_back(own_seconds);
  if (mine_.size() < interval_) return {};
  const size_t ranks = slow_.size();
  Times all(ranks * interval_);
  ThreadPool pool(1);
  Stream host(Stream::Mode::Inline, pool);
  world_.all_gather({all.data(), DType::F64, {static_cast<int64_t>(all.size())}},
                    {mine_.data(), DType::F64, {static_cast<int64_t>(interval_)}}, host);
  mine_.clear();
  for (size_t at = 0; at < interval_; ++at) {
    Times times;
    for (size_t rank = 0; rank < ranks; ++rank) times.push_back(all[rank * interval_ + at]);
    take(times);
  }
  if (compared_.size() < kWindow) return {};
  std::vector<SlowRank> changes;
  for (size_t rank = 0; rank < ranks; ++rank) {
    Times ratios, seconds;
    double more = 0;  // seconds beyond what its peers take
    for (size_t at = 0; at < kWindow; ++at) {
      if (compared_[at][rank] > 0) more += last_[at][rank] * (1 - 1 / compared_[at][rank]);
      ratios.push_back(compared_[at][rank]);
      seconds.push_back(last_[at][rank]);
    }
    const auto slow_steps = static_cast<size_t>(
        std::count_if(ratios.begin(), ratios.end(), [](double times) { return times > kTimes; }));
    // A rank counts as slow until it is as fast as its peers in most steps.
    const bool is_slow =
        slow_[rank] ? slow_steps > kWindow / 2 : slow_steps >= kSlow && more >= kLeastSeconds;
    if (is_slow == slow_[rank]) continue;
    slow_[rank] = is_slow;
    changes.push_back({step, static_cast<int>(rank), {}, is_slow, median_of(ratios), median_of(seconds)});
  }
  if (changes.empty()) return changes;
  const auto processes = gather_texts(world_, "naming slow ranks", [] { return this_process(); });
  for (SlowRank& change : changes) change.process = processes[static_cast<size_t>(change.rank)];
  return changes;
}

}  // namespace trifold
