#include <array>
#include <map>

#include "core/error.h"
#include "schedule/batches.h"
#include "schedule/check/check_rows.h"
#include "schedule/placement.h"

namespace trifold {

namespace {

// The stage at the other end of a message.
int neighbour(const Action& action) {
  const bool up = action.kind == ActionKind::SendF || action.kind == ActionKind::RecvB;
  return action.stage + (up ? 1 : -1);
}

size_t peer_of(const Action& action, const std::vector<int>& rank_of) {
  return static_cast<size_t>(rank_of[static_cast<size_t>(neighbour(action))]);
}

// The matching action at the other end.
Action partner(const Action& action) {
  constexpr std::array kPartners{ActionKind::RecvF, ActionKind::SendF, ActionKind::RecvB, ActionKind::SendB};
  const auto place = static_cast<size_t>(action.kind) - static_cast<size_t>(ActionKind::SendF);
  return {kPartners.at(place), neighbour(action), Action::kAll, action.micro};
}

}  // namespace

void check_message_order(const Plan& plan, const std::vector<int>& rank_of) {
  struct Line {
    std::vector<Action> sent;
    size_t received = 0;
  };
  std::map<std::array<size_t, 3>, Line> lines;  // from, to, direction
  const auto line = [&](size_t from, size_t to, const Action& action) -> Line& {
    return lines[{from, to, is_forward_message(action.kind) ? size_t{1} : size_t{0}}];
  };
  for (size_t rank = 0; rank < plan.size(); ++rank)
    for (const Action& action : plan[rank])
      if (is_send(action.kind)) line(rank, peer_of(action, rank_of), action).sent.push_back(action);
  for (size_t rank = 0; rank < plan.size(); ++rank)
    for (size_t i = 0; i < plan[rank].size(); ++i) {
      const Action& action = plan[rank][i];
      if (!is_message(action.kind) || is_send(action.kind)) continue;
      const size_t peer = peer_of(action, rank_of);
      Line& from_peer = line(peer, rank, action);
      const Action& sent = from_peer.sent.at(from_peer.received++);
      if (sent != partner(action))
        bad_input(
            "the plan is wrong at {}: the next message from rank {} to rank {} is {}; "
            "messages in one direction are received in the order in which they are sent",
            where(plan, rank, i), peer, rank, to_string(sent));
    }
}

namespace {

// Runs the rows on ranks that block in every message and reduction; see check_plan.
class Blocking {
 public:
  Blocking(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of)
      : plan_(plan),
        rank_of_(rank_of),
        tied_ranks_(tied_ranks(plan)),
        micros_(static_cast<size_t>(shape.micros)),
        ranks_(plan.size()) {
    posted_.resize(4 * rank_of.size() * micros_);
  }

  void run() {
    for (size_t rank = 0; rank < plan_.size(); ++rank) wake(rank);
    while (!awake_.empty()) {
      const size_t rank = awake_.back();
      awake_.pop_back();
      ranks_[rank].awake = false;
      while (advance(rank)) {
      }
    }
    check_finished();
  }

 private:
  struct Stream {
    size_t at = 0;        // the begin of the current batch; the end of the run: none
    bool posted = false;  // the peers know it
  };
  struct Rank {
    size_t next = 0;
    size_t run_end = 0;               // the end of the current run of messages; 0: none
    std::array<Stream, 2> streams{};  // backward, forward
    int tied = 0;                     // REDUCE_TIEDs reached
    bool tied_posted = false;
    bool awake = false;
  };

  void wake(size_t rank) {
    if (ranks_[rank].awake) return;
    ranks_[rank].awake = true;
    awake_.push_back(rank);
  }

  size_t slot(const Action& action) const {
    const auto kind = static_cast<size_t>(action.kind) - static_cast<size_t>(ActionKind::SendF);
    return (kind * rank_of_.size() + static_cast<size_t>(action.stage)) * micros_ +
           static_cast<size_t>(action.micro);
  }

  // Advances the rank by one action or run of messages; false if it has to wait.
  bool advance(size_t rank) {
    Rank& self = ranks_[rank];
    if (self.next == plan_[rank].size()) return false;
    const Action& action = plan_[rank][self.next];
    if (action.kind == ActionKind::ReduceTied) return pass_tied(rank);
    if (is_message(action.kind)) return pass_messages(rank);
    ++self.next;
    return true;
  }

  bool pass_tied(size_t rank) {
    Rank& self = ranks_[rank];
    if (!self.tied_posted) ++self.tied;
    self.tied_posted = true;
    for (const size_t other : tied_ranks_)
      if (ranks_[other].tied < self.tied) return false;
    self.tied_posted = false;
    ++self.next;
    for (const size_t other : tied_ranks_)
      if (other != rank) wake(other);
    return true;
  }

  // The first batch of the direction, from `at` on, within the run.
  size_t find_batch(size_t rank, size_t at, bool forward) const {
    const RankPlan& row = plan_[rank];
    while (at < ranks_[rank].run_end && is_forward_message(row[at].kind) != forward) ++at;
    return at;
  }

  bool pass_messages(size_t rank) {
    Rank& self = ranks_[rank];
    const RankPlan& row = plan_[rank];
    if (self.run_end == 0) {
      self.run_end = self.next;
      while (self.run_end < row.size() && is_message(row[self.run_end].kind)) ++self.run_end;
      for (const bool forward : {false, true})
        self.streams[forward] = {find_batch(rank, self.next, forward), false};
    }
    bool done = true;
    for (const bool forward : {false, true}) done = pass_stream(rank, forward) && done;
    if (!done) return false;
    self.next = self.run_end;
    self.run_end = 0;
    return true;
  }

  // Advances one direction through the run as far as possible; true at the end of the run.
  bool pass_stream(size_t rank, bool forward) {
    Stream& stream = ranks_[rank].streams[forward];
    const RankPlan& row = plan_[rank];
    while (stream.at < ranks_[rank].run_end) {
      const size_t end = batch_end(row, stream.at);
      for (size_t i = stream.at; i < end && !stream.posted; ++i) {
        posted_[slot(row[i])] = true;
        wake(peer_of(row[i], rank_of_));
      }
      stream.posted = true;
      if (first_waiting(row, stream.at, end) < end) return false;
      stream = {find_batch(rank, end, forward), false};
    }
    return true;
  }

  size_t first_waiting(const RankPlan& row, size_t begin, size_t end) const {
    while (begin < end && posted_[slot(partner(row[begin]))]) ++begin;
    return begin;
  }

  std::string waits_for(size_t rank) const {
    const Rank& self = ranks_[rank];
    const RankPlan& row = plan_[rank];
    if (row[self.next].kind == ActionKind::ReduceTied)
      return fmt::format("\n  {} waits for those of other ranks", where(plan_, rank, self.next));
    for (const Stream& stream : self.streams) {
      if (stream.at >= self.run_end) continue;
      const size_t at = first_waiting(row, stream.at, batch_end(row, stream.at));
      const Action other = partner(row[at]);
      return fmt::format("\n  {} waits for {} of rank {}", where(plan_, rank, at), to_string(other),
                         peer_of(row[at], rank_of_));
    }
    return {};
  }

  void check_finished() const {
    constexpr int kShown = 8;
    std::string stuck;
    int count = 0;
    for (size_t rank = 0; rank < plan_.size(); ++rank)
      if (ranks_[rank].next < plan_[rank].size() && ++count <= kShown) stuck += waits_for(rank);
    if (count > kShown) stuck += fmt::format("\n  and {} more ranks", count - kShown);
    if (count > 0) bad_input("the plan deadlocks:{}", stuck);
  }

  const Plan& plan_;
  const std::vector<int>& rank_of_;
  std::vector<size_t> tied_ranks_;
  size_t micros_;
  std::vector<Rank> ranks_;
  std::vector<bool> posted_;  // [kind of message, stage, micro]
  std::vector<size_t> awake_;
};

}  // namespace

void check_runs(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of) {
  Blocking(plan, shape, rank_of).run();
}

}  // namespace trifold
