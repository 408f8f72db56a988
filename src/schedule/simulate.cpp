#include "schedule/simulate.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/error.h"
#include "schedule/action_seconds.h"
#include "schedule/batches.h"
#include "schedule/placement.h"
#include "schedule/plan_memory.h"

namespace trifold {

namespace {

constexpr double kUnknown = -1;

// Times follow from one another without choices, so ranks are advanced as far as the known times allow, in
// any order, until no further time can be derived.
class Simulator {
 public:
  Simulator(const Plan& plan, const PlanShape& shape, const CostModel& cost)
      : plan_(plan),
        shape_(shape),
        cost_(cost),
        seconds_(shape, cost),
        rank_of_(stage_ranks(plan)),
        tied_ranks_(tied_ranks(plan)),
        micros_(static_cast<size_t>(shape.micros)),
        messages_(2 * rank_of_.size() * micros_),
        ranks_(plan.size()),
        reduced_micro_(rank_of_.size(), Action::kAll),
        reduced_from_(rank_of_.size()) {
    for (size_t s = 0; s < reduced_from_.size(); ++s) reduced_from_[s] = blocks_of(s);
    for (size_t rank = 0; rank < plan.size(); ++rank) memory_.push_back(row_memory(plan[rank], shape, cost));
  }

  Simulation run() {
    for (size_t rank = 0; rank < plan_.size(); ++rank) wake(rank);
    while (!awake_.empty()) {
      const size_t rank = awake_.back();
      awake_.pop_back();
      ranks_[rank].awake = false;
      do {
        for (const bool forward : {false, true}) pass_batches(rank, forward);
      } while (compute(rank));
    }
    return report();
  }

 private:
  // The times at which each side of a message began its batch, and at which the receiver's batch was done.
  struct Message {
    double sent = kUnknown;
    double received = kUnknown;
    double ready = kUnknown;
  };
  struct Batch {
    size_t begin;
    double posted;
  };
  struct Stream {
    std::vector<Batch> batches;
    size_t next = 0;     // the current batch
    bool begun = false;  // its begin is recorded in its messages
    double free = 0;     // when the previous batch was done
  };
  struct Rank {
    size_t next = 0;
    double now = 0;                                            // the end of its computation so far
    double gradients = 0;                                      // the end of its reductions so far
    double offloads = 0;                                       // the end of its OFFLOADs and FETCHes so far
    std::map<std::tuple<int, int, int>, double> fetched = {};  // [stage, block, micro] the end of the FETCH
    double left = 0;  // the end of the last OFFLOAD, if no FETCH has followed
    double fetch_wait = 0;
    size_t offloaded_bytes = 0, fetched_bytes = 0;
    double tied_at = kUnknown;        // when it reached the REDUCE_TIED in which it waits
    std::array<Stream, 2> streams{};  // backward, forward
    double busy = 0;
    double first = kUnknown, last = 0;  // begin of its first and end of its last computation
    double peak_begins = 0;             // see check_memory
    size_t sent_bytes = 0;
    bool awake = false;
    std::vector<TimelineEntry> timeline = {};
  };

  void wake(size_t rank) {
    if (ranks_[rank].awake) return;
    ranks_[rank].awake = true;
    awake_.push_back(rank);
  }

  int blocks_of(size_t stage) const { return shape_.blocks.empty() ? 1 : shape_.blocks[stage]; }
  size_t rank_of(int stage) const { return static_cast<size_t>(rank_of_[static_cast<size_t>(stage)]); }
  const StageCost& cost_of(int stage) const { return cost_.stages[static_cast<size_t>(stage)]; }
  int last_stage() const { return static_cast<int>(rank_of_.size()) - 1; }

  // Messages are identified by direction, receiving stage and micro-batch.
  Message& message(bool forward, int receiver, int micro) {
    const size_t stage = static_cast<size_t>(receiver) + (forward ? rank_of_.size() : 0);
    return messages_[stage * micros_ + static_cast<size_t>(micro)];
  }

  int neighbour(const Action& action) const {
    const bool up = action.kind == ActionKind::SendF || action.kind == ActionKind::RecvB;
    return action.stage + (up ? 1 : -1);
  }

  Message& message_of(const Action& action) {
    const int receiver = is_send(action.kind) ? neighbour(action) : action.stage;
    return message(is_forward_message(action.kind), receiver, action.micro);
  }

  size_t bytes_of(const Action& action) const {
    const bool own_output = action.kind == ActionKind::SendF || action.kind == ActionKind::RecvB;
    return cost_of(own_output ? action.stage : action.stage - 1).message_bytes;
  }

  double message_time(const Action& action) const {
    return cost_.message_seconds + static_cast<double>(bytes_of(action)) / cost_.bytes_per_second;
  }

  void add_entry(size_t rank, const Action& action, double begin, double end, uint8_t half = 0) {
    if (cost_.timeline)
      ranks_[rank].timeline.push_back({static_cast<int>(rank), action, begin, end,
                                       !is_compute(action.kind) && action.kind != ActionKind::Step, half});
  }

  // Advances one direction's queue as far as the peers' times are known.
  void pass_batches(size_t rank, bool forward) {
    Stream& stream = ranks_[rank].streams[forward];
    for (; stream.next < stream.batches.size(); ++stream.next) {
      const Batch& batch = stream.batches[stream.next];
      const size_t end = batch_end(plan_[rank], batch.begin);
      if (!stream.begun) begin_batch(rank, batch.begin, end, std::max(stream.free, batch.posted));
      stream.begun = true;
      if (!end_batch(rank, stream, batch.begin, end)) return;
      stream.begun = false;
    }
  }

  void begin_batch(size_t rank, size_t from, size_t to, double time) {
    for (size_t i = from; i < to; ++i) {
      const Action& action = plan_[rank][i];
      (is_send(action.kind) ? message_of(action).sent : message_of(action).received) = time;
      wake(rank_of(neighbour(action)));
    }
  }

  bool end_batch(size_t rank, Stream& stream, size_t from, size_t to) {
    const RankPlan& row = plan_[rank];
    double done = stream.free;
    for (size_t i = from; i < to; ++i) {
      const Message& each = message_of(row[i]);
      if (each.sent == kUnknown || each.received == kUnknown) return false;
      done = std::max(done, std::max(each.sent, each.received) + message_time(row[i]));
    }
    for (size_t i = from; i < to; ++i) {
      Message& each = message_of(row[i]);
      const double begin = std::max(each.sent, each.received);
      add_entry(rank, row[i], begin, begin + message_time(row[i]));
      if (is_send(row[i].kind))
        ranks_[rank].sent_bytes += bytes_of(row[i]);
      else
        each.ready = done;
    }
    stream.free = done;
    return true;
  }

  // The message that the action waits for; null if none.
  const Message* needed(const Action& action) {
    const int stage = action.stage;
    if (action.kind == ActionKind::F)
      return stage > 0 && rank_of(stage - 1) != rank_of(stage) ? &message(true, stage, action.micro)
                                                               : nullptr;
    const bool begins =
        action.block == Action::kAll || action.block == blocks_of(static_cast<size_t>(stage)) - 1;
    if (action.kind == ActionKind::W || !begins || stage == last_stage()) return nullptr;
    return rank_of(stage + 1) != rank_of(stage) ? &message(false, stage, action.micro) : nullptr;
  }

  // Advances the rank through its row until it has to wait; true if it posted messages.
  bool compute(size_t rank) {
    Rank& self = ranks_[rank];
    const RankPlan& row = plan_[rank];
    bool posted = false;
    while (self.next < row.size()) {
      const Action& action = row[self.next];
      if (is_message(action.kind)) {
        self.streams[is_forward_message(action.kind)].batches.push_back({self.next, self.now});
        self.next = batch_end(row, self.next);
        posted = true;
      } else if (is_compute(action.kind)) {
        if (!compute_one(rank, action)) break;
      } else if (action.kind == ActionKind::ReduceTied) {
        if (!reduce_tied(rank)) break;
      } else if (is_offload(action.kind)) {
        offload(rank, action);
        ++self.next;
      } else {
        reduce_or_step(rank, action);
        ++self.next;
      }
    }
    return posted;
  }

  // The time at which the action's input is available; kUnknown if it is not known yet.
  double input_ready(const Action& action) {
    const Message* input = needed(action);
    return input == nullptr ? 0 : input->ready;
  }

  bool compute_one(size_t rank, const Action& action) {
    Rank& self = ranks_[rank];
    const double input = input_ready(action);
    const double partner = action.overlaps_next ? input_ready(plan_[rank][self.next + 1]) : 0;
    if (input == kUnknown || partner == kUnknown) return false;
    double begin = std::max({self.now, input, partner});
    const double fetched = std::max(
        fetched_at(self, action), action.overlaps_next ? fetched_at(self, plan_[rank][self.next + 1]) : 0.0);
    self.fetch_wait += std::max(0.0, fetched - begin);
    begin = std::max(begin, fetched);
    if (self.first == kUnknown) self.first = begin;
    const bool pair = is_overlapped(rank, self.next);
    const double whole = pair ? seconds_.of_pair(action, plan_[rank][self.next + 1]) : seconds_.of(action);
    const bool turns = pair && cost_.pairs == PairExecution::Alternating;
    for (size_t end = self.next + (pair ? 2 : 1); self.next < end; ++self.next) {
      if (self.next == memory_[rank].peak_at) self.peak_begins = begin;
      const Action& part = plan_[rank][self.next];
      const int half = self.next + 1 == end ? 2 : 1;
      add_entry(rank, part, begin, begin + (turns ? whole : seconds_.of(part)),
                static_cast<uint8_t>(turns ? half : 0));
    }
    self.now = self.last = begin + whole;
    self.busy += whole;
    return true;
  }

  bool is_overlapped(size_t rank, size_t at) const {
    return cost_.pairs != PairExecution::Sequential && can_take_turns(plan_[rank], at);
  }

  bool reduce_tied(size_t rank) {
    ranks_[rank].tied_at = ranks_[rank].now;
    double begin = 0;
    for (const size_t each : tied_ranks_) {
      if (ranks_[each].tied_at == kUnknown) return false;
      begin = std::max(begin, ranks_[each].now);
    }
    for (const size_t each : tied_ranks_) {
      Rank& meeting = ranks_[each];
      add_entry(each, plan_[each][meeting.next], begin, begin + cost_.tied_seconds);
      meeting.now = begin + cost_.tied_seconds;
      meeting.tied_at = kUnknown;
      ++meeting.next;
      if (each != rank) wake(each);
    }
    return true;
  }

  size_t offloaded_bytes(const Action& action) const {
    const StageCost& cost = cost_of(action.stage);
    const auto block = static_cast<size_t>(std::max(action.block, 0));
    if (block < cost.offloaded_bytes.size()) return cost.offloaded_bytes[block];
    return cost.kept_bytes / static_cast<size_t>(blocks_of(static_cast<size_t>(action.stage)));
  }

  // The time at which the activations that a backward reads have been fetched: its block's, and the output of the block
  // before.
  double fetched_at(const Rank& self, const Action& action) const {
    if (self.fetched.empty() || !is_backward(action.kind)) return 0;
    const bool whole = action.block == Action::kAll;
    const int last = whole ? blocks_of(static_cast<size_t>(action.stage)) - 1 : action.block;
    double time = 0;
    for (int block = whole ? 0 : std::max(action.block - 1, 0); block <= last; ++block) {
      const auto found = self.fetched.find({action.stage, block, action.micro});
      if (found != self.fetched.end()) time = std::max(time, found->second);
    }
    return time;
  }

  // Waits until the previous OFFLOAD is done: one block's activations are off-loaded at a time.
  static void wait_for_offload(Rank& self) {
    const double wait = std::max(0.0, self.left - self.now);
    self.fetch_wait += wait;
    self.now += wait;
  }

  void offload(size_t rank, const Action& action) {
    Rank& self = ranks_[rank];
    const size_t bytes = offloaded_bytes(action);
    const bool leaves = action.kind == ActionKind::Offload;
    if (leaves) wait_for_offload(self);
    const double begin = std::max(self.now, self.offloads);
    self.offloads = begin + static_cast<double>(bytes) / cost_.offload_bytes_per_second;
    add_entry(rank, action, begin, self.offloads);
    self.left = leaves ? self.offloads : 0;
    if (!leaves) self.fetched[{action.stage, action.block, action.micro}] = self.offloads;
    (leaves ? self.offloaded_bytes : self.fetched_bytes) += bytes;
  }

  void reduce_or_step(size_t rank, const Action& action) {
    Rank& self = ranks_[rank];
    const auto stage = static_cast<size_t>(action.stage);
    const StageCost& cost = cost_of(action.stage);
    const int blocks = blocks_of(stage);
    if (action.kind == ActionKind::ReduceGrad) {
      const int from = std::max(action.block, 0);
      if (action.micro != reduced_micro_[stage]) reduced_from_[stage] = blocks;
      reduced_micro_[stage] = action.micro;
      const double begin = std::max(self.now, self.gradients);
      self.gradients = begin + cost.reduce * std::max(0, reduced_from_[stage] - from) / blocks;
      reduced_from_[stage] = from;
      add_entry(rank, action, begin, self.gradients);
    } else if (action.kind == ActionKind::Step) {
      const double begin = std::max(self.now, self.gradients);
      self.now = begin + cost.step;
      reduced_from_[stage] = blocks;
      add_entry(rank, action, begin, self.now);
    }
  }

  double end_of(const Rank& rank) const {
    return std::max({rank.now, rank.gradients, rank.offloads, rank.streams[0].free, rank.streams[1].free});
  }

  Simulation report() {
    Simulation result;
    std::vector<double> peak_begins;
    for (size_t rank = 0; rank < plan_.size(); ++rank) {
      const Rank& self = ranks_[rank];
      check(self.next == plan_[rank].size(), "the simulation is stuck at {}, although the plan was checked",
            self.next < plan_[rank].size() ? where(plan_, rank, self.next) : std::string());
      result.makespan = std::max(result.makespan, end_of(self));
      peak_begins.push_back(self.peak_begins);
    }
    if (cost_.memory_limit) check_memory(plan_, memory_, peak_begins, *cost_.memory_limit);
    double idle = 0;
    for (size_t rank = 0; rank < plan_.size(); ++rank) {
      const Rank& self = ranks_[rank];
      idle += result.makespan - self.busy;
      result.ranks.push_back({self.busy, result.makespan - self.busy,
                              self.last - std::max(self.first, 0.0) - self.busy, memory_[rank].peak_in_flight,
                              memory_[rank].versions, memory_[rank].peak, self.sent_bytes,
                              self.offloaded_bytes, self.fetched_bytes, self.fetch_wait});
      append_timeline(result.timeline, ranks_[rank].timeline);
    }
    if (result.makespan > 0) result.bubble = idle / (static_cast<double>(plan_.size()) * result.makespan);
    return result;
  }

  static void append_timeline(std::vector<TimelineEntry>& all, std::vector<TimelineEntry>& rank_entries) {
    std::stable_sort(rank_entries.begin(), rank_entries.end(),
                     [](const TimelineEntry& a, const TimelineEntry& b) { return a.begin < b.begin; });
    all.insert(all.end(), rank_entries.begin(), rank_entries.end());
    rank_entries = {};
  }

  const Plan& plan_;
  const PlanShape& shape_;
  const CostModel& cost_;
  ActionSeconds seconds_;
  std::vector<int> rank_of_;
  std::vector<size_t> tied_ranks_;
  size_t micros_;
  std::vector<Message> messages_;
  std::vector<Rank> ranks_;
  std::vector<int> reduced_micro_;  // [stage] the micro-batch of the last reduction, if it is of one
  std::vector<int> reduced_from_;   // [stage] gradients of this block and later ones are reduced
  std::vector<RowMemory> memory_;
  std::vector<size_t> awake_;
};

}  // namespace

Simulation simulate(const Plan& plan, const PlanShape& shape, const CostModel& cost) {
  check_plan(plan, shape);
  check(static_cast<int>(cost.stages.size()) == shape.stages, "costs of {} stages for a plan of {}",
        cost.stages.size(), shape.stages);
  return Simulator(plan, shape, cost).run();
}

}  // namespace trifold
