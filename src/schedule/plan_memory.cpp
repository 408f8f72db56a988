#include "schedule/plan_memory.h"

#include <algorithm>
#include <map>

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

}  // namespace

RowMemory row_memory(const RankPlan& row, const PlanShape& shape, const CostModel& cost) {
  RowMemory memory;
  for (const auto& [stage, versions] : versions_of_stages(row)) {
    const StageCost& own = cost.stages[static_cast<size_t>(stage)];
    memory.fixed += static_cast<size_t>(versions) * own.parameter_bytes + own.state_bytes;
    memory.versions = std::max(memory.versions, versions);
  }
  memory.peak = memory.fixed;
  size_t now = memory.fixed;
  int in_flight = 0;
  // The share of block `block` of `blocks` in what a micro-batch keeps, such that the shares add up.
  const auto share = [](const StageCost& own, int block, int blocks) {
    const auto up_to = [&](int count) {
      return own.kept_bytes * static_cast<size_t>(count) / static_cast<size_t>(blocks);
    };
    return up_to(block + 1) - up_to(block);
  };
  const auto leave = [&](const StageCost& own) {
    now -= own.kept_bytes;
    --in_flight;
  };
  for (size_t i = 0; i < row.size(); ++i) {
    const Action& action = row[i];
    if (!is_compute(action.kind) && !is_offload(action.kind)) continue;
    const auto stage = static_cast<size_t>(action.stage);
    const StageCost& own = cost.stages[stage];
    const int blocks = shape.blocks.empty() ? 1 : shape.blocks[stage];
    const bool first_part = action.block == Action::kAll || action.block == blocks - 1;
    const bool last_part = action.block <= 0;  // kAll too
    if (action.kind == ActionKind::Offload) now -= share(own, action.block, blocks);
    if (action.kind == ActionKind::F || action.kind == ActionKind::Fetch)
      now += action.block == Action::kAll ? own.kept_bytes : share(own, action.block, blocks);
    if (action.kind == ActionKind::F && action.block <= 0) ++in_flight;
    if (action.kind == ActionKind::I && first_part) now += own.held_bytes;
    memory.peak_in_flight = std::max(memory.peak_in_flight, in_flight);
    if (now > memory.peak) {
      memory.peak = now;
      memory.peak_at = i;
      memory.in_flight_there = in_flight;
    }
    if (action.kind == ActionKind::W && last_part) now -= own.held_bytes;
    const bool last_forward = action.block == Action::kAll || action.block == blocks - 1;
    const bool done = action.kind == ActionKind::F
                          ? shape.forward_only && last_forward
                          : is_backward(action.kind) && action.kind != ActionKind::I && last_part;
    if (done) leave(own);
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
      "rank {} needs {} of memory, {} more than the limit of {}, at {}, {:.4g} s after the beginning: {} for "
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
