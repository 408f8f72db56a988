#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "core/error.h"
#include "schedule/passes.h"
#include "schedule/placement.h"

namespace trifold {

namespace {

bool has_messages(const Plan& plan) {
  return std::any_of(plan.begin(), plan.end(), [](const RankPlan& row) {
    return std::any_of(row.begin(), row.end(), [](const Action& action) { return is_message(action.kind); });
  });
}

// Whether this action completes the gradient of the stage's input.
bool ends_input_gradient(const Action& action) {
  return (action.kind == ActionKind::I || action.kind == ActionKind::B) &&
         (action.block == Action::kAll || action.block == 0);
}

// The time of a message, where a forward takes 1: long enough that no receive is written at the very moment at which a
// computation waits for it, short enough to delay none by more than that.
constexpr double kMessageTime = 1.0 / 64;

// Simulates the rows as events in time and writes them again, in the order in which actions end.
class Writer {
 public:
  Writer(const Plan& plan, int lookups)
      : plan_(plan),
        lookups_(lookups),
        rank_of_(stage_ranks(plan)),
        tied_ranks_(tied_ranks(plan)),
        out_(plan.size()),
        ranks_(plan.size()) {
    size_t actions = 0;
    for (const RankPlan& row : plan) actions += row.size();
    for (size_t rank = 0; rank < plan.size(); ++rank)
      for (size_t i = 0; i < plan[rank].size(); ++i)
        if (is_compute(plan[rank][i].kind)) count(rank, i, actions);
    held_back_ = std::max(lookups_, has_one_stage_each() ? stages_without_backward() : 0);
    started_.resize(rank_of_.size() * micros_);
    before_.assign(started_.size(), kNone);
    std::vector<int> last(rank_of_.size(), kNone);
    for (const RankPlan& row : plan)
      for (const Action& action : row)
        if (action.kind == ActionKind::F && action.stage <= held_back_ && action.block <= 0)
          before_[item(static_cast<size_t>(action.stage), action.micro)] =
              std::exchange(last[static_cast<size_t>(action.stage)], action.micro);
    outputs_.resize(rank_of_.size() * micros_);
    gradients_.resize(rank_of_.size() * micros_);
    for (size_t rank = 0; rank < plan.size(); ++rank) awake_.push_back(rank);
  }

  Plan write() {
    start_all();
    while (!ends_.empty() || !arrivals_.empty() || begin_early()) {
      now_ = std::min(ends_.empty() ? kNever : ends_.top().time,
                      arrivals_.empty() ? kNever : arrivals_.front().time);
      for (; !arrivals_.empty() && arrivals_.front().time == now_; arrivals_.pop()) arrive(arrivals_.front());
      std::vector<Action> ended;  // at this time, by rank
      while (!ends_.empty() && ends_.top().time == now_) {
        end(ends_.top().rank, ended);
        ends_.pop();
      }
      // Messages follow the computations that end at the same time, grouped by direction.
      for (const Action& action : ended) forward_message(action);
      for (const Action& action : ended) backward_message(action);
      start_all();
    }
    check_finished();
    return std::move(out_);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr int kNone = -1;

  struct Rank {
    size_t next = 0;
    bool busy = false;
  };
  struct Arrival {  // an output or a gradient that reaches the rank that reads it
    double time;
    bool forward;
    size_t item, rank;
  };
  struct End {
    double time;
    size_t rank;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : rank > other.rank;
    }
  };

  // Rejects stage and micro-batch numbers beyond the number of actions, because every stage computes every micro-batch;
  // an absurd number would otherwise become the size of a table.
  void count(size_t rank, size_t index, size_t actions) {
    const Action& action = plan_[rank][index];
    micros_ = std::max(micros_, static_cast<size_t>(action.micro) + 1);
    if (action.micro < 0 || micros_ * rank_of_.size() > actions)
      bad_input("the plan is wrong at {}: with {} stages it has too few actions for that many micro-batches",
                where(plan_, rank, index), rank_of_.size());
    has_backward_.resize(rank_of_.size(), false);
    if (is_backward(action.kind)) has_backward_[static_cast<size_t>(action.stage)] = true;
    blocks_.resize(rank_of_.size(), 1);
    int& blocks = blocks_[static_cast<size_t>(action.stage)];
    blocks = std::max(blocks, action.block + 1);
  }

  bool has_one_stage_each() const { return rank_of_.size() <= plan_.size() + static_cast<size_t>(lookups_); }

  // The number of first stages without a backward; 0 if no stage has one.
  int stages_without_backward() const {
    const auto first = std::find(has_backward_.begin(), has_backward_.end(), true);
    return first == has_backward_.end() ? 0 : static_cast<int>(first - has_backward_.begin());
  }

  double cost(const Action& action) const {
    if (!is_compute(action.kind) || action.stage < lookups_) return 0;
    const double whole = action.kind == ActionKind::B ? 2 : 1;
    return action.block == Action::kAll ? whole : whole / blocks_[static_cast<size_t>(action.stage)];
  }

  size_t last_stage() const { return rank_of_.size() - 1; }
  size_t rank_of(size_t stage) const { return static_cast<size_t>(rank_of_[stage]); }
  size_t item(size_t stage, int micro) const { return stage * micros_ + static_cast<size_t>(micro); }

  // The action on another stage that this action waits for, as text; empty if it waits for none.
  std::string missing(const Action& action) const {
    const auto stage = static_cast<size_t>(action.stage);
    if (action.kind == ActionKind::F && stage > 0 && !outputs_[item(stage - 1, action.micro)])
      return fmt::format("{}F{}", stage - 1, action.micro);
    if ((action.kind == ActionKind::I || action.kind == ActionKind::B) && stage < last_stage() &&
        !gradients_[item(stage + 1, action.micro)])
      return fmt::format("the gradient of stage {} for micro-batch {}", stage + 1, action.micro);
    if (action.kind == ActionKind::ReduceTied && !all_at_tied_reduction()) return "the other REDUCE_TIED";
    return {};
  }

  // Whether all ranks with a tied stage have reached their reduction.
  bool all_at_tied_reduction() const {
    return std::all_of(tied_ranks_.begin(), tied_ranks_.end(), [&](size_t rank) {
      const Rank& peer = ranks_[rank];
      const RankPlan& row = plan_[rank];
      return !peer.busy && peer.next < row.size() && row[peer.next].kind == ActionKind::ReduceTied;
    });
  }

  // The number of actions that begin together: an overlapped pair or one.
  size_t unit(size_t rank) const {
    const size_t next = ranks_[rank].next;
    return plan_[rank][next].overlaps_next && next + 1 < plan_[rank].size() ? 2 : 1;
  }

  std::string missing_of_unit(size_t rank) const {
    const Action* action = &plan_[rank][ranks_[rank].next];
    const std::string first = missing(*action);
    return first.empty() && unit(rank) == 2 ? missing(action[1]) : first;
  }

  // Whether the action is a forward that only the next stage's forward waits for: no backward of its own stage follows
  // soon, if ever.
  bool is_held_back(const Action& action) const {
    return action.kind == ActionKind::F && action.stage < held_back_;
  }

  // Whether the rank's next action would run ahead: it is such a forward, the rank has nothing else to do, and the next
  // stage has not begun the previous micro-batch. The messages of all such forwards would otherwise precede the outputs
  // of the stages that they reach, and take memory there until they are read.
  bool is_early(size_t rank) const {
    const RankPlan& row = plan_[rank];
    size_t at = ranks_[rank].next;
    if (!is_held_back(row[at])) return false;
    const auto next = static_cast<size_t>(row[at].stage) + 1;
    const int before = before_[item(next, row[at].micro)];
    if (before == kNone || started_[item(next, before)]) return false;
    while (at < row.size() && (is_held_back(row[at]) || row[at].kind == ActionKind::Step)) ++at;
    return at == row.size() || !missing(row[at]).empty();
  }

  // If all ranks wait, lets one begin early. False if none can.
  bool begin_early() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const size_t next = ranks_[rank].next;
      if (next == plan_[rank].size() || !is_held_back(plan_[rank][next]) || !missing_of_unit(rank).empty())
        continue;
      start(rank);
      return true;
    }
    return false;
  }

  void start(size_t rank) {
    ranks_[rank].busy = true;
    double seconds = 0;
    for (size_t at = ranks_[rank].next, end = at + unit(rank); at < end; ++at) {
      const Action& action = plan_[rank][at];
      seconds += cost(action);
      if (held_back_ == 0 || action.kind != ActionKind::F || action.stage > held_back_) continue;
      started_[item(static_cast<size_t>(action.stage), action.micro)] = true;
      if (action.stage > 0) awake_.push_back(rank_of(static_cast<size_t>(action.stage) - 1));
    }
    ends_.push({now_ + seconds, rank});
  }

  void start_all() {
    while (!awake_.empty()) {
      const size_t rank = awake_.back();
      awake_.pop_back();
      if (ranks_[rank].busy || ranks_[rank].next == plan_[rank].size()) continue;
      const Action& action = plan_[rank][ranks_[rank].next];
      if (!missing_of_unit(rank).empty() || is_early(rank)) continue;
      start(rank);
      if (action.kind != ActionKind::ReduceTied) continue;
      for (const size_t other : tied_ranks_)
        if (other != rank) start(other);
    }
  }

  void message(size_t from_stage, size_t to_stage, int micro, ActionKind send, ActionKind receive) {
    const size_t from = rank_of(from_stage);
    const size_t to = rank_of(to_stage);
    const Arrival arrival{now_ + kMessageTime, send == ActionKind::SendF, item(from_stage, micro), to};
    if (from == to) return arrive(arrival);
    arrivals_.push(arrival);
    out_[from].push_back({send, static_cast<int>(from_stage), Action::kAll, micro});
    out_[to].push_back({receive, static_cast<int>(to_stage), Action::kAll, micro});
  }

  void arrive(const Arrival& arrival) {
    (arrival.forward ? outputs_ : gradients_)[arrival.item] = true;
    awake_.push_back(arrival.rank);
  }

  void end(size_t rank, std::vector<Action>& ended) {
    for (size_t left = unit(rank); left > 0; --left) {
      ended.push_back(plan_[rank][ranks_[rank].next++]);
      out_[rank].push_back(ended.back());
    }
    ranks_[rank].busy = false;
    awake_.push_back(rank);
  }

  void forward_message(const Action& action) {
    const auto stage = static_cast<size_t>(action.stage);
    if (action.kind != ActionKind::F) return;
    if (action.block != Action::kAll && action.block + 1 != blocks_[stage]) return;
    if (stage < last_stage()) message(stage, stage + 1, action.micro, ActionKind::SendF, ActionKind::RecvF);
  }

  void backward_message(const Action& action) {
    const auto stage = static_cast<size_t>(action.stage);
    if (!ends_input_gradient(action)) return;
    if (stage > 0 && has_backward_[stage - 1])
      message(stage, stage - 1, action.micro, ActionKind::SendB, ActionKind::RecvB);
  }

  void check_finished() const {
    std::string stuck;
    for (size_t rank = 0; rank < plan_.size(); ++rank) {
      const size_t next = ranks_[rank].next;
      if (next < plan_[rank].size())
        stuck += fmt::format("\n  {} waits for {}", where(plan_, rank, next), missing_of_unit(rank));
    }
    if (!stuck.empty()) bad_input("the plan cannot run in this order; it deadlocks:{}", stuck);
  }

  const Plan& plan_;
  int lookups_;
  int held_back_ = 0;  // first stages whose forwards stay one micro-batch ahead of the next stage
  std::vector<int> rank_of_;
  std::vector<size_t> tied_ranks_;
  std::vector<int> blocks_;         // [stage]
  std::vector<bool> has_backward_;  // [stage]
  size_t micros_ = 0;
  std::vector<bool> started_;              // [stage, micro] forwards of the first stages up to `held_back_`
  std::vector<int> before_;                // [stage, micro] the previous micro-batch on these stages
  std::vector<bool> outputs_, gradients_;  // [stage, micro] available to the next and to the previous stage
  std::queue<Arrival> arrivals_;           // in order of time, because all messages take equally long
  Plan out_;
  std::vector<Rank> ranks_;
  std::vector<size_t> awake_;  // ranks that may be able to start an action
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;
};

}  // namespace

Plan add_communication(Plan plan, Pairs pairs, int lookups) {
  if (pairs == Pairs::Apart)
    for (RankPlan& row : plan)
      for (Action& action : row) action.overlaps_next = false;
  return has_messages(plan) ? plan : Writer(plan, lookups).write();
}

}  // namespace trifold
