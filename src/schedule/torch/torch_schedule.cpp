#include "schedule/torch/torch_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/trimmed.h"
#include "schedule/passes.h"
#include "schedule/placement.h"

namespace trifold {

namespace {

constexpr std::string_view kWait = "WAIT_";

// Removes the waits from a text, row by row; cells keep their positions.
class Waits {
 public:
  std::string without(std::string_view text) {
    std::string rest;
    std::string cell;
    for (const char c : text) {
      if (c != ',' && c != '\n') {
        cell += c;
        continue;
      }
      rest += take(cell) + c;
      cell.clear();
      if (c == '\n') ++row_, cell_ = 1, pending_.clear();
    }
    return rest + take(cell);
  }
  bool for_sends() const { return for_sends_; }

 private:
  // The cell, or an empty text in place of a wait.
  std::string take(std::string_view text) {
    std::string cell(trimmed(text));
    const size_t wait = cell.find(kWait);
    const int number = cell_++;
    if (wait == std::string::npos) {
      pending_.insert(cell);
      return cell;
    }
    const std::string awaited = std::string(cell).erase(wait, kWait.size());
    const bool send = awaited.find("SEND_") != std::string::npos;
    if ((!send && !awaited.ends_with("REDUCE_GRAD")) || pending_.erase(awaited) == 0)
      bad_input("row {}, cell {}: '{}' waits for {}, which does not come before it or was waited for already",
                row_, number, cell, awaited);
    for_sends_ = for_sends_ || send;
    return {};
  }

  int row_ = 1, cell_ = 1;         // the next cell
  std::set<std::string> pending_;  // cells of the row that no wait has named yet
  bool for_sends_ = false;
};

// The row's F, I, W and B, as whole stages; with `residency`, also its gathers. A pair stays a pair if both
// of its halves were whole.
RankPlan whole_stages(const RankPlan& row, bool residency) {
  RankPlan whole;
  for (size_t i = 0; i < row.size(); ++i) {
    Action action = row[i];
    if ((!is_compute(action.kind) && !(residency && is_residency(action))) || action.block > 0) continue;
    if (action.block != Action::kAll || i + 1 == row.size() || !is_compute(row[i + 1].kind) ||
        row[i + 1].block != Action::kAll)
      action.overlaps_next = false;
    action.block = Action::kAll;
    whole.push_back(action);
  }
  return whole;
}

// BadInput for asynchronous plans: PyTorch updates weights after the whole plan.
void check_synchronous(const Plan& plan) {
  for (size_t rank = 0; rank < plan.size(); ++rank) {
    std::set<int> updated;  // stages
    for (size_t i = 0; i < plan[rank].size(); ++i) {
      const Action& action = plan[rank][i];
      if (action.kind == ActionKind::Step) updated.insert(action.stage);
      if (!is_compute(action.kind) || (action.version == 0 && updated.count(action.stage) == 0)) continue;
      bad_input("the plan has no form that PyTorch reads: {} {}; synchronous schedules can be written",
                where(plan, rank, i),
                action.version != 0 ? "names a weight version" : "follows an update of its stage");
    }
  }
}

Plan whole_stages(const Plan& plan, bool residency) {
  check_synchronous(plan);
  Plan whole;
  for (const RankPlan& row : plan) whole.push_back(whole_stages(row, residency));
  return whole;
}

// Whether the plan says when weights are gathered, always for whole stages.
bool gathers_stages(const Plan& plan) {
  bool any = false;
  for (const RankPlan& row : plan)
    for (const Action& action : row) {
      if (!is_residency(action)) continue;
      if (action.block != Action::kAll) return false;
      any = true;
    }
  return any;
}

// Calls visit(actions) for each cell of the row: one action, or the two of a pair.
template <class Visit>
void for_each_cell(std::span<const Action> row, Visit&& visit) {
  while (!row.empty()) {
    size_t size = 1;
    while (size < row.size() && row[size - 1].overlaps_next) ++size;
    visit(row.first(size));
    row = row.subspan(size);
  }
}

// The stages of a row, in the order of their first action.
std::vector<int> stages_of(const RankPlan& row) {
  std::vector<int> stages;
  for (const Action& action : row)
    if (std::find(stages.begin(), stages.end(), action.stage) == stages.end()) stages.push_back(action.stage);
  return stages;
}

// The row with the reduction of each stage and, unless it already says when weights are gathered, with
// gathers.
RankPlan with_reductions(const RankPlan& row, bool gathers) {
  std::map<int, int> gradients_left;  // [stage] weight gradients that remain
  for (const Action& action : row)
    if (adds_to_gradients(action.kind, false, false)) ++gradients_left[action.stage];
  RankPlan out;
  if (!gathers)
    for (const int stage : stages_of(row)) out.push_back({ActionKind::Unshard, stage});
  for_each_cell(row, [&](std::span<const Action> cell) {
    out.insert(out.end(), cell.begin(), cell.end());
    for (const Action& action : cell) {
      if (!adds_to_gradients(action.kind, false, false) || --gradients_left[action.stage] > 0) continue;
      out.push_back({ActionKind::ReduceGrad, action.stage});
      if (!gathers) out.push_back({ActionKind::Reshard, action.stage});
    }
  });
  return out;
}

// Writes a row with the waits that PyTorch requires: one for each send and each reduction.
class WaitWriter {
 public:
  std::string write(const RankPlan& row) {
    for_each_cell(row, [&](std::span<const Action> cell) {
      std::string line = to_string(Plan{RankPlan(cell.begin(), cell.end())});
      line.pop_back();  // the line end
      add(line);
      for (const Action& action : cell) follow(action);
    });
    for (const Action& send : pending_) add(wait_for(send));
    return text_ + "\n";
  }

 private:
  static std::string wait_for(const Action& action) {
    return fmt::format("{}{}{}{}", action.stage, kWait, name_of(action.kind),
                       action.micro == Action::kAll ? "" : std::to_string(action.micro));
  }
  void add(const std::string& cell) { text_ += (text_.empty() ? "" : ",") + cell; }

  // Waits for the send of a forward's output at its backward, which proves that the next stage has received it.
  void follow(const Action& action) {
    if (is_send(action.kind)) pending_.push_back(action);
    if (action.kind == ActionKind::ReduceGrad) add(wait_for(action));
    if (action.kind != ActionKind::B && action.kind != ActionKind::I) return;
    const auto send = std::find(pending_.begin(), pending_.end(),
                                Action{ActionKind::SendF, action.stage, Action::kAll, action.micro});
    if (send == pending_.end()) return;
    add(wait_for(*send));
    pending_.erase(send);
  }

  std::string text_;
  std::vector<Action> pending_;  // sends that no wait covers yet
};

}  // namespace

Plan parse_plan_with_waits(std::string_view text) {
  Waits waits;
  Plan plan = parse_plan(waits.without(text));
  if (!waits.for_sends()) return plan;
  for (RankPlan& row : plan) std::erase_if(row, [](const Action& action) { return is_message(action.kind); });
  return plan;
}

std::string to_torch_csv(const Plan& plan) { return to_string(whole_stages(plan, false)); }

std::string to_torch_comms_csv(const Plan& plan) {
  const bool gathers = gathers_stages(plan);
  Plan whole = whole_stages(plan, gathers);
  for (RankPlan& row : whole) row = with_reductions(row, gathers);
  std::string text;
  for (const RankPlan& row : add_communication(std::move(whole), Pairs::Together))
    text += WaitWriter().write(row);
  return text;
}

}  // namespace trifold
