#include <algorithm>
#include <set>

#include "core/error.h"
#include "schedule/passes.h"

namespace trifold {

namespace {

// The units that actions on stages and blocks read.
class Reads {
 public:
  Reads(const UnitsOfBlocks& units, const UnitsOfBlocks& read_by_w, const UnitsOfBlocks& read_by_b)
      : units_(units), by_w_(read_by_w), by_b_(read_by_b) {}

  const UnitsOfBlocks& of(ActionKind kind) const {
    if (kind == ActionKind::W) return by_w_;
    return kind == ActionKind::F ? units_ : by_b_;
  }
  // Whether actions of a kind read weights on a stage.
  bool reads(const Action& action) const {
    if (action.kind == ActionKind::F || action.kind == ActionKind::B || action.kind == ActionKind::I)
      return true;
    if (action.kind != ActionKind::W || by_w_.empty()) return false;
    const auto& blocks = by_w_.at(static_cast<size_t>(action.stage));
    return std::any_of(blocks.begin(), blocks.end(), [](const auto& block) { return !block.empty(); });
  }
  const std::vector<WeightUnit>& by(const Action& action) const {
    return of(action.kind).at(static_cast<size_t>(action.stage)).at(static_cast<size_t>(action.block));
  }
  const UnitsOfBlocks& all() const { return units_; }

 private:
  const UnitsOfBlocks& units_;
  const UnitsOfBlocks& by_w_;
  const UnitsOfBlocks& by_b_;
};

// Splits actions on whole stages into actions on blocks, in the order in which the executor runs them.
RankPlan by_blocks(const RankPlan& row, const Reads& reads) {
  RankPlan parts;
  for (Action action : row) {
    action.overlaps_next = false;
    if (!reads.reads(action) || action.block != Action::kAll) {
      parts.push_back(action);
      continue;
    }
    const int count = static_cast<int>(reads.all().at(static_cast<size_t>(action.stage)).size());
    for (int i = 0; i < count; ++i) {
      action.block = action.kind == ActionKind::F ? i : count - 1 - i;
      parts.push_back(action);
    }
  }
  return parts;
}

class Resident {
 public:
  Resident(RankPlan row, const Reads& reads, int ahead)
      : row_(std::move(row)), reads_(reads), ahead_(ahead) {}

  RankPlan run() {
    for (size_t i = 0; i < row_.size(); ++i) {
      if (reads_.reads(row_[i])) settle(i);
      out_.push_back(row_[i]);
    }
    for (const WeightUnit& unit : here_) out_.push_back({ActionKind::Reshard, unit.stage, unit.block});
    return std::move(out_);
  }

 private:
  // The units that should be gathered while action `at` runs: those it reads, then the next units after it,
  // in the order in which they are needed.
  std::vector<WeightUnit> wanted(size_t at) const {
    std::vector<WeightUnit> list = reads_.by(row_[at]);
    const size_t most = list.size() + static_cast<size_t>(ahead_);
    for (size_t i = at + 1; i < row_.size() && list.size() < most; ++i) {
      if (row_[i].kind == ActionKind::Step) break;  // weights change
      if (!reads_.reads(row_[i])) continue;
      for (const WeightUnit& unit : reads_.by(row_[i]))
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
  const Reads& reads_;
  int ahead_;
  std::set<WeightUnit> here_;
  RankPlan out_;
};

// Applies the UNSHARDs and RESHARDs of whole stages in a row to the stages' units.
class Given {
 public:
  explicit Given(const Reads& reads) : reads_(reads), units_(reads.all()) {}

  RankPlan run(const RankPlan& row) {
    for (const Action& action : row) {
      const bool resides = stages_.count(action.stage) > 0;
      if (action.kind == ActionKind::Unshard) {
        stages_.insert(action.stage);
        gather(action.stage);
      } else if (action.kind == ActionKind::Reshard) {
        stages_.erase(action.stage);
        release(action.stage);
      } else {
        // A Step changes the weights, so later reads need them gathered again.
        if (action.kind == ActionKind::Step) drop(units_of(action.stage));
        if (resides && reads_.reads(action)) gather(action.stage);
        out_.push_back(action);
      }
    }
    drop(std::set<WeightUnit>(here_));
    return std::move(out_);
  }

 private:
  std::set<WeightUnit> units_of(int stage) const {
    std::set<WeightUnit> all;
    for (const std::vector<WeightUnit>& block : units_.at(static_cast<size_t>(stage)))
      all.insert(block.begin(), block.end());
    return all;
  }

  // Gathers the units of a stage in the order in which a forward needs them.
  void gather(int stage) {
    for (const std::vector<WeightUnit>& block : units_.at(static_cast<size_t>(stage)))
      for (const WeightUnit& unit : block)
        if (here_.insert(unit).second) out_.push_back({ActionKind::Unshard, unit.stage, unit.block});
  }

  // Releases the units of a stage, except units that other gathered stages share.
  void release(int stage) {
    std::set<WeightUnit> units = units_of(stage);
    for (int other : stages_)
      for (const WeightUnit& unit : units_of(other)) units.erase(unit);
    drop(units);
  }

  void drop(const std::set<WeightUnit>& units) {
    for (const WeightUnit& unit : units)
      if (here_.erase(unit) > 0) out_.push_back({ActionKind::Reshard, unit.stage, unit.block});
  }

  const Reads& reads_;
  const UnitsOfBlocks& units_;
  std::set<int> stages_;  // gathered at present, according to the row
  std::set<WeightUnit> here_;
  RankPlan out_;
};

}  // namespace

RankPlan add_residency(const RankPlan& row, const UnitsOfBlocks& units, int ahead,
                       const UnitsOfBlocks& read_by_w, const UnitsOfBlocks& read_by_b) {
  const Reads reads(units, read_by_w, read_by_b);
  if (std::any_of(row.begin(), row.end(), is_residency)) return Given(reads).run(row);
  return Resident(by_blocks(row, reads), reads, ahead).run();
}

RankPlan without_residency(RankPlan row) {
  std::erase_if(row, is_residency);
  return row;
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
