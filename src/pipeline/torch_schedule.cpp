#include "pipeline/torch_schedule.h"

#include <set>

#include "core/error.h"
#include "pipeline/placement.h"

namespace trifold {

namespace {

constexpr std::string_view kWait = "WAIT_";

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

// Takes the waits out of a text, row by row; cells keep their places.
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
  // The cell, or nothing in place of a wait.
  std::string take(std::string_view text) {
    std::string cell = trimmed(text);
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

// The row's F, I, W and B, whole stages each. A pair stays one where both of its halves were whole.
RankPlan whole_computation(const RankPlan& row) {
  RankPlan whole;
  for (size_t i = 0; i < row.size(); ++i) {
    Action action = row[i];
    if (!is_compute(action.kind) || action.block > 0) continue;
    if (action.block != Action::kAll || i + 1 == row.size() || !is_compute(row[i + 1].kind) ||
        row[i + 1].block != Action::kAll)
      action.overlaps_next = false;
    action.block = Action::kAll;
    whole.push_back(action);
  }
  return whole;
}

}  // namespace

Plan parse_plan_with_waits(std::string_view text) {
  Waits waits;
  Plan plan = parse_plan(waits.without(text));
  if (!waits.for_sends()) return plan;
  for (RankPlan& row : plan) std::erase_if(row, [](const Action& action) { return is_message(action.kind); });
  return plan;
}

std::string to_torch_csv(const Plan& plan) {
  Plan computation;
  for (size_t rank = 0; rank < plan.size(); ++rank) {
    for (size_t i = 0; i < plan[rank].size(); ++i)
      if (plan[rank][i].version != 0)
        bad_input(
            "the plan has no form that PyTorch reads: {} names a weight version; synchronous schedules can "
            "be written",
            where(plan, rank, i));
    computation.push_back(whole_computation(plan[rank]));
  }
  return to_string(computation);
}

}  // namespace trifold
