#include <algorithm>
#include <set>

#include "core/error.h"
#include "pipeline/passes.h"

namespace trifold {

namespace {

bool reads_weights(ActionKind kind) {
  return kind == ActionKind::F || kind == ActionKind::B || kind == ActionKind::I;
}

// Actions on whole stages become actions on blocks, in the order the executor would take them.
RankPlan by_blocks(const RankPlan& row, const UnitsOfBlocks& units) {
  RankPlan parts;
  for (Action action : row) {
    action.overlaps_next = false;
    if (!reads_weights(action.kind) || action.block != Action::kAll) {
      parts.push_back(action);
      continue;
    }
    const int count = static_cast<int>(units.at(static_cast<size_t>(action.stage)).size());
    for (int i = 0; i < count; ++i) {
      action.block = action.kind == ActionKind::F ? i : count - 1 - i;
      parts.push_back(action);
    }
  }
  return parts;
}

class Resident {
 public:
  Resident(RankPlan row, const UnitsOfBlocks& units, int ahead)
      : row_(std::move(row)), units_(units), ahead_(ahead) {}

  RankPlan run() {
    for (size_t i = 0; i < row_.size(); ++i) {
      if (reads_weights(row_[i].kind)) settle(i);
      out_.push_back(row_[i]);
    }
    for (const WeightUnit& unit : here_) out_.push_back({ActionKind::Reshard, unit.stage, unit.block});
    return std::move(out_);
  }

 private:
  const std::vector<WeightUnit>& read_by(const Action& action) const {
    return units_.at(static_cast<size_t>(action.stage)).at(static_cast<size_t>(action.block));
  }

  // What should be there while action `at` runs: what it reads, then the next units after it, in the order in
  // which they are needed.
  std::vector<WeightUnit> wanted(size_t at) const {
    std::vector<WeightUnit> list = read_by(row_[at]);
    const size_t most = list.size() + static_cast<size_t>(ahead_);
    for (size_t i = at + 1; i < row_.size() && list.size() < most; ++i) {
      if (row_[i].kind == ActionKind::Step) break;  // weights change
      if (!reads_weights(row_[i].kind)) continue;
      for (const WeightUnit& unit : read_by(row_[i]))
        if (list.size() < most && std::find(list.begin(), list.end(), unit) == list.end())
          list.push_back(unit);
    }
    return list;
  }

  void settle(size_t at) {
    const std::vector<WeightUnit> list = wanted(at);
    const auto is_wanted = [&](const WeightUnit& unit) {
      return std::find(list.begin(), list.end(), unit) != list.end();
    };
    for (auto unit = here_.begin(); unit != here_.end();) {
      if (is_wanted(*unit)) {
        ++unit;
        continue;
      }
      out_.push_back({ActionKind::Reshard, unit->stage, unit->block});
      unit = here_.erase(unit);
    }
    for (const WeightUnit& unit : list)
      if (here_.insert(unit).second) out_.push_back({ActionKind::Unshard, unit.stage, unit.block});
  }

  RankPlan row_;
  const UnitsOfBlocks& units_;
  int ahead_;
  std::set<WeightUnit> here_;
  RankPlan out_;
};

}  // namespace

RankPlan add_residency(const RankPlan& row, const UnitsOfBlocks& units, int ahead) {
  return Resident(by_blocks(row, units), units, ahead).run();
}

std::vector<std::pair<WeightUnit, WeightUnit>> weights_together(const RankPlan& row) {
  std::set<WeightUnit> here;
  std::set<std::pair<WeightUnit, WeightUnit>> pairs;
  for (const Action& action : row) {
    const WeightUnit unit{action.stage, action.block};
    if (action.kind == ActionKind::Reshard) here.erase(unit);
    if (action.kind != ActionKind::Unshard) continue;
    for (const WeightUnit& other : here) pairs.insert(std::minmax(unit, other));
    here.insert(unit);
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace trifold
