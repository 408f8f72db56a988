#include "plan/goodput/failing_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "core/random.h"

namespace trifold {

namespace {

constexpr double RunSeconds::*kParts[] = {&RunSeconds::work, &RunSeconds::saving,  &RunSeconds::lost,
                                          &RunSeconds::down, &RunSeconds::waiting, &RunSeconds::slower};

constexpr double kNever = std::numeric_limits<double>::infinity();

// Exponentially distributed times from counted random numbers.
class FailureTimes {
 public:
  FailureTimes(uint64_t seed, int64_t trial) : key_(philox_key(seed, fmt::format("failures/{}", trial))) {}

  double next(double mean) {
    constexpr double kUnit = 1.0 / 18446744073709551616.0;
    const auto words = philox(key_, count_++);
    const double uniform =  // in (0, 1]
        (static_cast<double>((uint64_t{words[0]} << 32) | words[1]) + 1) * kUnit;
    return std::isinf(mean) ? kNever : -std::log(uniform) * mean;
  }

 private:
  PhiloxKey key_;
  uint64_t count_ = 0;
};

// The steps from one start of the ranks to the next. Times count from the start.
class Stretch {
 public:
  Stretch(const FailingRun& run, double step, double restart, int64_t remaining)
      : costs_(run.costs), interval_(run.interval), remaining_(remaining), restart_(restart) {
    costs_.step = step;
    saves_ = (remaining - 1) / interval_;  // before the last one
  }

  // When checkpoint `save`, counted from 1, is complete.
  double complete(int64_t save) const {
    return restart_ + costs_.first_period(interval_) +
           static_cast<double>(save - 1) * costs_.period(interval_) + costs_.tail;
  }
  // When the last step is saved.
  double end() const {
    const double rest = static_cast<double>(remaining_ - saves_ * interval_) * costs_.step;
    if (saves_ == 0) return restart_ + rest + costs_.stall + costs_.tail;
    return complete(saves_) + std::max(rest - costs_.tail, 0.0) + costs_.stall + costs_.tail;
  }
  // The checkpoints before the last one that are complete at `time`.
  int64_t saved_by(double time) const {
    const double since_first = time - complete(1);
    if (saves_ == 0 || since_first < 0) return 0;
    const double more = std::floor(since_first / costs_.period(interval_));
    return more >= static_cast<double>(saves_ - 1) ? saves_ : 1 + static_cast<int64_t>(more);
  }
  int64_t saves() const { return saves_; }
  double restart() const { return restart_; }

 private:
  SaveCosts costs_;
  int64_t interval_, remaining_, saves_;
  double restart_;
};

class Trial {
 public:
  Trial(const FailingRun& run, uint64_t seed, int64_t trial) : run_(run), times_(seed, trial) {
    const double work = static_cast<double>(run.steps) * run.costs.step;
    limit_ = 20 * (work + run.repair + run.costs.detect + run.costs.restart);
  }

  RunOutcome simulate() {
    double restart = 0;  // the first start is no restart
    while (done_ < run_.steps && outcome_.ended) {
      if (const std::optional<size_t> mesh = mesh_for(intact(now_)))
        restart = compute_on(*mesh, restart);
      else
        wait_for_repair();
      if (now_ > limit_ || outcome_.failures > kMostFailures) outcome_.ended = false;
    }
    return outcome_;
  }

 private:
  int64_t nodes() const { return run_.meshes.front().nodes + run_.spares; }
  // The first node that is still broken at `time`.
  auto broken_at(double time) const { return std::upper_bound(repairs_.begin(), repairs_.end(), time); }
  int64_t intact(double time) const { return nodes() - (repairs_.end() - broken_at(time)); }

  std::optional<size_t> mesh_for(int64_t nodes) const {
    for (size_t i = 0; i < run_.meshes.size(); ++i)
      if (run_.meshes[i].nodes <= nodes) return i;
    return std::nullopt;
  }

  void wait_for_repair() {
    forget_repaired();
    outcome_.seconds.waiting += repairs_.front() - now_;
    now_ = repairs_.front();
  }

  void forget_repaired() {
    while (!repairs_.empty() && repairs_.front() <= now_) repairs_.pop_front();
  }

  // When repairs allow a larger mesh than the one of this index.
  double larger_mesh_at(size_t mesh) const {
    if (mesh == 0) return kNever;
    // So many of all repairs must be done.
    const int64_t needed = std::ssize(repairs_) - (nodes() - run_.meshes[mesh - 1].nodes);
    const int64_t first = std::max<int64_t>(broken_at(now_) - repairs_.begin(), needed - 1);
    return first < std::ssize(repairs_) ? repairs_[static_cast<size_t>(first)] : kNever;
  }

  // Computes until the end, the next failure, or the save after which a larger mesh takes over. Returns the seconds of
  // the restart that follows.
  double compute_on(size_t index, double restart) {
    const MeshOfNodes& mesh = run_.meshes[index];
    const Stretch stretch(run_, mesh.step, restart, run_.steps - done_);
    const double failure = times_.next(run_.node_mtbf / static_cast<double>(mesh.nodes));
    const double grown = larger_mesh_at(index) - now_;
    const int64_t last = grown < stretch.end() ? next_save(stretch, grown) : stretch.saves() + 1;
    const bool finishes = last > stretch.saves();
    const double end = finishes ? stretch.end() : stretch.complete(last);
    if (end <= failure) {
      account(stretch, mesh, end, finishes ? run_.steps - done_ : last * run_.interval, true);
      return run_.costs.restart;
    }
    account(stretch, mesh, failure, stretch.saved_by(failure) * run_.interval, false);
    fail();
    return run_.costs.restart;
  }

  // The first save that is complete at `time` or later.
  static int64_t next_save(const Stretch& stretch, double time) {
    const int64_t saved = stretch.saved_by(time);
    return saved > 0 && stretch.complete(saved) >= time ? saved : saved + 1;
  }

  void account(const Stretch& stretch, const MeshOfNodes& mesh, double seconds, int64_t steps,
               bool all_saved) {
    RunSeconds& parts = outcome_.seconds;
    const auto count = static_cast<double>(steps);
    const double down = std::min(seconds, stretch.restart());
    double saved = seconds;  // the end of what counts
    if (!all_saved) saved = steps > 0 ? stretch.complete(steps / run_.interval) - run_.costs.tail : down;
    parts.down += down;
    parts.work += count * run_.costs.step;
    parts.slower += count * (mesh.step - run_.costs.step);
    parts.saving += saved - down - count * mesh.step;
    parts.lost += seconds - saved;
    done_ += steps;
    now_ += seconds;
  }

  void fail() {
    ++outcome_.failures;
    forget_repaired();
    repairs_.push_back(now_ + run_.repair);
    now_ += run_.costs.detect;
    outcome_.seconds.down += run_.costs.detect;
  }

  const FailingRun& run_;
  FailureTimes times_;
  RunOutcome outcome_;
  double now_ = 0;
  double limit_ = 0;
  int64_t done_ = 0;            // steps in the last complete checkpoint
  std::deque<double> repairs_;  // when each broken node is intact again, ascending
};

}  // namespace

RunOutcome simulate_failures(const FailingRun& run, uint64_t seed, int64_t trial) {
  return Trial(run, seed, trial).simulate();
}

bool is_worse(const RunForecast& a, const RunForecast& b) {
  if (a.ended != b.ended) return b.ended;
  return a.seconds.goodput() < b.seconds.goodput();
}

RunForecast forecast_failures(const FailingRun& run, uint64_t seed, int64_t trials) {
  RunForecast forecast;
  RunSeconds sums;
  std::vector<double> lengths;
  double failures = 0;
  while (forecast.ended && static_cast<int64_t>(lengths.size()) < trials && failures < kMostFailures) {
    const RunOutcome outcome = simulate_failures(run, seed, static_cast<int64_t>(lengths.size()));
    for (const auto part : kParts) sums.*part += outcome.seconds.*part;
    failures += static_cast<double>(outcome.failures);
    forecast.ended = outcome.ended;
    lengths.push_back(outcome.seconds.all());
  }
  const auto count = static_cast<double>(lengths.size());
  for (const auto part : kParts) forecast.seconds.*part = sums.*part / count;
  forecast.failures = failures / count;
  forecast.trials = static_cast<int64_t>(lengths.size());
  std::sort(lengths.begin(), lengths.end());
  const size_t tail = lengths.size() / 20;
  forecast.low_seconds = lengths[tail];
  forecast.high_seconds = lengths[lengths.size() - 1 - tail];
  return forecast;
}

}  // namespace trifold
