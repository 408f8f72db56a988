#include "schedule/plan_memory.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/bytes_text.h"
#include "core/error.h"
#include "schedule/placement.h"

namespace trifold {

namespace {

// The maximum number of versions of each stage's weights that are in use at once: the newest, and every older
// one that a later action names.
std::map<int, int> versions_of_stages(const RankPlan& row) {
  std::map<int, std::vector<size_t>> last_uses;  // [stage][version]
  for (size_t i = 0; i < row.size(); ++i) {
    if (!is_compute(row[i].kind)) continue;
    std::vector<size_t>& uses = last_uses[row[i].stage];
    const auto version = static_cast<size_t>(row[i].version);
    if (uses.size() <= version) uses.resize(version + 1, 0);
    uses[version] = i;
  }
  std::map<int, int> most;
  std::map<int, size_t> newest;
  for (const auto& [stage, uses] : last_uses) most[stage] = 1;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].kind != ActionKind::Step) continue;
    const std::vector<size_t>& uses = last_uses[row[i].stage];
    const size_t older = std::min(++newest[row[i].stage], uses.size());
    const auto in_use = std::count_if(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(older),
                                      [i](size_t last) { return last > i; });
    most[row[i].stage] = std::max(most[row[i].stage], static_cast<int>(in_use) + 1);
  }
  return most;
}

// Whether a stage's memory of a micro-batch is still read after its last backward: by the next stage on the same rank,
// whose weight gradient reads its input there. The executor releases both together.
class Readers {
 public:
  explicit Readers(const RankPlan& row) {
    for (const Action& action : row)
      if (action.kind == ActionKind::F) states_[action.stage];
    for (auto state = states_.begin(); state != states_.end(); ++state) {
      const auto next = std::next(state);
      has_neighbours_ |= next != states_.end() && next->first == state->first + 1;
    }
  }

  // Call when the micro-batch's memory on the stage is taken.
  void begin(const Action& action) {
    if (has_neighbours_) states_[action.stage][action.micro] = State::Open;
  }

  // Call after the forward on a stage without a backward: the memory is released at once, unless the next stage on the
  // same rank reads its input there; otherwise with that stage's. `leave` as in `end`.
  template <class Leave>
  void pass(const Action& action, Leave&& leave) {
    if (!has_neighbours_ || states_.count(action.stage + 1) == 0) return end(action, leave);
    states_[action.stage][action.micro] = State::Finished;
  }

  // Call after its last backward on the stage: calls leave(stage) for each stage whose memory is released.
  template <class Leave>
  void end(const Action& action, Leave&& leave) {
    if (!has_neighbours_) return leave(action.stage);
    states_[action.stage][action.micro] = State::Finished;
    if (find(action.stage + 1, action.micro)) return;
    for (int stage = action.stage; find(stage, action.micro) == State::Finished; --stage) {
      leave(stage);
      states_[stage].erase(action.micro);
    }
  }

 private:
  enum class State : uint8_t { Open, Finished };

  std::optional<State> find(int stage, int micro) const {
    const auto states = states_.find(stage);
    if (states == states_.end()) return std::nullopt;
    const auto known = states->second.find(micro);
    return known == states->second.end() ? std::nullopt : std::optional(known->second);
  }

  std::map<int, std::unordered_map<int, State>> states_;  // [stage][micro-batch] whose memory is taken
  bool has_neighbours_ = false;
};

}  // namespace

RowMemory row_memory(const RankPlan& row, const PlanShape& shape, const CostModel& cost) {
  RowMemory memory;
  for (const auto& [stage, versions] : versions_of_stages(row)) {
    const StageCost& stage_cost = cost.stages[static_cast<size_t>(stage)];
    memory.fixed += static_cast<size_t>(versions) * stage_cost.parameter_bytes + stage_cost.state_bytes;
    memory.versions = std::max(memory.versions, versions);
  }
  memory.peak = memory.fixed;
  size_t now = memory.fixed;
  int in_flight = 0;
  const auto counts = [&](int stage) { return stage >= static_cast<int>(shape.lookups.size()) ? 1 : 0; };
  // The share of block `block` of `blocks` in what a micro-batch keeps, such that the shares add up.
  const auto share = [](const StageCost& stage_cost, int block, int blocks) {
    const auto up_to = [&](int count) {
      return stage_cost.kept_bytes * static_cast<size_t>(count) / static_cast<size_t>(blocks);
    };
    return up_to(block + 1) - up_to(block);
  };
  Readers readers(row);
  for (size_t i = 0; i < row.size(); ++i) {
    const Action& action = row[i];
    if (!is_compute(action.kind) && !is_offload(action.kind)) continue;
    const auto stage = static_cast<size_t>(action.stage);
    const StageCost& stage_cost = cost.stages[stage];
    const int blocks = shape.blocks.empty() ? 1 : shape.blocks[stage];
    const bool first_part = action.block == Action::kAll || action.block == blocks - 1;
    const bool last_part = action.block <= 0;  // kAll too
    if (action.kind == ActionKind::Offload) now -= share(stage_cost, action.block, blocks);
    if (action.kind == ActionKind::F || action.kind == ActionKind::Fetch)
      now += action.block == Action::kAll ? stage_cost.kept_bytes : share(stage_cost, action.block, blocks);
    if (action.kind == ActionKind::F && action.block <= 0) {
      in_flight += counts(action.stage);
      readers.begin(action);
    }
    if (action.kind == ActionKind::I && first_part) now += stage_cost.held_bytes;
    memory.peak_in_flight = std::max(memory.peak_in_flight, in_flight);
    if (now > memory.peak) {
      memory.peak = now;
      memory.peak_at = i;
      memory.in_flight_there = in_flight;
    }
    if (action.kind == ActionKind::W && last_part) now -= stage_cost.held_bytes;
    const bool last_forward = action.block == Action::kAll || action.block == blocks - 1;
    const bool passes = action.stage < shape.without_backward;
    const bool done = action.kind == ActionKind::F
                          ? (shape.forward_only || passes) && last_forward
                          : is_backward(action.kind) && action.kind != ActionKind::I && last_part;
    if (!done) continue;
    const auto leave = [&](int stage_left) {
      now -= cost.stages[static_cast<size_t>(stage_left)].kept_bytes;
      in_flight -= counts(stage_left);
    };
    if (shape.forward_only)
      leave(action.stage);
    else if (passes)
      readers.pass(action, leave);
    else
      readers.end(action, leave);
  }
  return memory;
}

void check_memory(const Plan& plan, const std::vector<RowMemory>& rows, const std::vector<double>& begins,
                  size_t limit) {
  const auto worst = std::max_element(rows.begin(), rows.end(),
                                      [](const RowMemory& a, const RowMemory& b) { return a.peak < b.peak; });
  if (worst == rows.end() || worst->peak <= limit) return;
  const auto rank = static_cast<size_t>(worst - rows.begin());
  const auto over =
      std::count_if(rows.begin(), rows.end(), [&](const RowMemory& row) { return row.peak > limit; });
  bad_input(
      "rank {} needs {} of memory, {} more than the limit of {}, at {}, {:.4g} s after the start: {} for "
      "weights, gradients and optimizer ({} weight version{}) and {} for {} micro-batches in flight; {} of "
      "{} ranks are over the limit. {}",
      rank, bytes_text(worst->peak), bytes_text(worst->peak - limit), bytes_text(limit),
      where(plan, rank, worst->peak_at), begins[rank], bytes_text(worst->fixed), worst->versions,
      worst->versions == 1 ? "" : "s", bytes_text(worst->peak - worst->fixed), worst->in_flight_there, over,
      rows.size(),
      worst->fixed > limit
          ? "More tensor or pipeline ranks, or optimizer state sharded over the data axis, would help"
          : "Smaller micro-batches, recomputation, more tensor ranks, or a schedule that keeps fewer "
            "micro-batches in flight (1f1b) would help");
}

}  // namespace trifold
