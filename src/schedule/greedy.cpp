#include "schedule/greedy.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

constexpr double kUnscheduled = std::numeric_limits<double>::infinity();

// Ranks decide in the order of their clocks, so each knows everything that began earlier: the arrival of an
// input is known from the moment its producer begins. A rank with nothing to do sleeps until the next arrival
// it knows of; if it learns of another one, it decides again.
class Greedy {
 public:
  Greedy(const GreedyTask& task, const CostModel& cost, const GreedyRules& rules)
      : task_(task),
        cost_(cost),
        rules_(rules),
        micros_(static_cast<size_t>(task.micros)),
        rank_of_(cost.stages.size()),
        forward_at_(cost.stages.size() * micros_, kUnscheduled),
        gradient_at_(cost.stages.size() * micros_, kUnscheduled) {
    std::fill_n(forward_at_.begin(), micros_, 0.0);
    const auto ranks = static_cast<double>(task.stages.size());
    for (size_t rank = 0; rank < task.stages.size(); ++rank) {
      Rank& self = ranks_.emplace_back();
      for (const int stage : task.stages[rank]) {
        self.chunks.push_back({static_cast<size_t>(stage)});
        rank_of_[static_cast<size_t>(stage)] = rank;
      }
      const auto chunks = static_cast<double>(self.chunks.size());
      const auto place = static_cast<double>(rank);
      self.max_ahead = limited(chunks * (1 + std::round(rules.lead * (ranks - 1 - place))));
      self.max_behind = limited(chunks * std::round(rules.lag * place));
      awake_.insert({0, rank});
    }
  }

  GreedyPlan make() {
    while (!awake_.empty()) {
      const size_t rank = awake_.begin()->second;
      awake_.erase(awake_.begin());
      decide(rank);
    }
    GreedyPlan result;
    for (Rank& rank : ranks_) {
      check(rank.row.size() == 3 * micros_ * rank.chunks.size(),
            "no action of the greedy schedule can run next");
      result.seconds = std::max(result.seconds, rank.now);
      result.plan.push_back(std::move(rank.row));
    }
    return result;
  }

 private:
  // A stage of a rank, and the numbers of micro-batches that have begun each of its parts.
  struct Chunk {
    size_t stage;
    int forwards = 0, inputs = 0, weights = 0;
  };
  struct Rank {
    std::vector<Chunk> chunks = {};
    int max_ahead = 0, max_behind = 0;
    double now = 0;
    double idle_from = 0;
    bool sleeps = false;
    std::deque<size_t> behind = {};  // chunks of the pending weight gradients, in order
    RankPlan row = {};
  };
  struct Choice {
    size_t chunk = 0;
    double at = kUnscheduled;  // the earliest time it can begin
  };

  int limited(double count) const {
    return static_cast<int>(std::min(count, static_cast<double>(task_.max_kept)));
  }

  void decide(size_t rank) {
    Rank& self = ranks_[rank];
    self.sleeps = false;
    bool full = false;
    const Choice forward = next_forward(self, full);
    const Choice input = next_input(self);
    const double next = std::min(forward.at, input.at);
    const bool overdue = static_cast<int>(self.behind.size()) > self.max_behind;
    const auto fills_a_gap = [&] {
      return !self.behind.empty() && (full || next - self.now >= rules_.gap * weight_seconds(self));
    };
    if (!overdue && input.at <= self.now && (rules_.inputs_first || forward.at > self.now))
      input_gradient(rank, input.chunk);
    else if (!overdue && forward.at <= self.now)
      compute_forward(rank, forward.chunk);
    else if (overdue || fills_a_gap())
      weight_gradient(rank);
    else
      sleep(rank, next);
  }

  // The forward that can begin first; among equals the one of the latest stage, which will release memory soonest.
  // Every chunk leaves room for one input of each later chunk; otherwise the later chunks could never release theirs.
  Choice next_forward(const Rank& self, bool& full) const {
    Choice best;
    int ahead = 0;
    int kept = 0;
    if (task_.strict)
      for (const Chunk& chunk : self.chunks) kept += chunk.forwards - chunk.weights;
    auto later = static_cast<int>(self.chunks.size());
    for (size_t c = 0; c < self.chunks.size(); ++c) {
      const Chunk& chunk = self.chunks[c];
      ahead += chunk.forwards - chunk.inputs;
      if (!task_.strict) kept += chunk.forwards - chunk.weights;
      --later;
      if (chunk.forwards == task_.micros || ahead + later >= self.max_ahead) continue;
      const double at = std::max(self.now, forward_at_[item(chunk.stage, chunk.forwards)]);
      if (kept + later >= task_.max_kept)
        full = full || at <= self.now;
      else if (at <= best.at && at < kUnscheduled)
        best = {c, at};
    }
    return best;
  }

  Choice next_input(const Rank& self) const {
    Choice best;
    for (size_t c = 0; c < self.chunks.size(); ++c) {
      const Chunk& chunk = self.chunks[c];
      if (chunk.inputs == chunk.forwards) continue;
      const double at = std::max(self.now, gradient_at_[item(chunk.stage, chunk.inputs)]);
      if (at <= best.at && at < kUnscheduled) best = {c, at};
    }
    return best;
  }

  void compute_forward(size_t rank, size_t c) {
    Chunk& chunk = ranks_[rank].chunks[c];
    const int micro = chunk.forwards++;
    const double begin = ranks_[rank].now;
    const double end = run(rank, ActionKind::F, chunk.stage, micro, cost_.stages[chunk.stage].f);
    if (chunk.stage + 1 == rank_of_.size())
      gradient_at_[item(chunk.stage, micro)] = end;
    else
      announce(forward_at_, chunk.stage + 1, micro, begin, end + message_time(chunk.stage));
  }

  void input_gradient(size_t rank, size_t c) {
    Chunk& chunk = ranks_[rank].chunks[c];
    const int micro = chunk.inputs++;
    const double begin = ranks_[rank].now;
    const double end = run(rank, ActionKind::I, chunk.stage, micro, cost_.stages[chunk.stage].i);
    ranks_[rank].behind.push_back(c);
    if (chunk.stage > 0)
      announce(gradient_at_, chunk.stage - 1, micro, begin, end + message_time(chunk.stage - 1));
  }

  void weight_gradient(size_t rank) {
    Rank& self = ranks_[rank];
    Chunk& chunk = self.chunks[self.behind.front()];
    self.behind.pop_front();
    run(rank, ActionKind::W, chunk.stage, chunk.weights++, cost_.stages[chunk.stage].w);
  }

  double weight_seconds(const Rank& self) const {
    return cost_.stages[self.chunks[self.behind.front()].stage].w;
  }

  // The time of a message between this stage and the next.
  double message_time(size_t stage) const {
    if (rank_of_[stage] == rank_of_[stage + 1]) return 0;
    return cost_.message_seconds +
           static_cast<double>(cost_.stages[stage].message_bytes) / cost_.bytes_per_second;
  }

  double run(size_t rank, ActionKind kind, size_t stage, int micro, double seconds) {
    Rank& self = ranks_[rank];
    self.row.push_back({kind, static_cast<int>(stage), Action::kAll, micro});
    self.now += seconds;
    awake_.insert({self.now, rank});
    return self.now;
  }

  void announce(std::vector<double>& arrivals, size_t stage, int micro, double now, double at) {
    arrivals[item(stage, micro)] = at;
    const size_t rank = rank_of_[stage];
    Rank& other = ranks_[rank];
    if (!other.sleeps) return;
    awake_.erase({other.now, rank});
    other.sleeps = false;
    other.now = std::max(other.idle_from, now);
    awake_.insert({other.now, rank});
  }

  void sleep(size_t rank, double until) {
    Rank& self = ranks_[rank];
    self.sleeps = true;
    self.idle_from = self.now;
    if (until == kUnscheduled) return;
    self.now = until;
    awake_.insert({until, rank});
  }

  size_t item(size_t stage, int micro) const { return stage * micros_ + static_cast<size_t>(micro); }

  const GreedyTask& task_;
  const CostModel& cost_;
  const GreedyRules& rules_;
  size_t micros_;
  std::vector<size_t> rank_of_;                   // [stage]
  std::vector<double> forward_at_, gradient_at_;  // [stage, micro] when the input of F, or of I, is available
  std::vector<Rank> ranks_;
  std::set<std::pair<double, size_t>> awake_;  // clock, rank
};

}  // namespace

GreedyPlan make_greedy(const GreedyTask& task, const CostModel& cost, const GreedyRules& rules) {
  return Greedy(task, cost, rules).make();
}

}  // namespace trifold
