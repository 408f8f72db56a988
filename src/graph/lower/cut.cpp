#include "graph/lower/cut.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

// Calls body(base) for each base that the step reads.
template <class Body>
void each_base(const StepPlan& step, Body&& body) {
  for (const std::vector<Operand>& operands : step.operands)
    for (const Operand& operand : operands) body(operand.base);
}

bool is_lookup(const LoweredGraph& lowered, const StepPlan& step) {
  if (!step.rule->is_lookup) return false;
  bool computed = false;
  each_base(step, [&](int base) {
    computed = computed || lowered.bases[static_cast<size_t>(base)].kind == Base::Kind::Computed;
  });
  return !computed;
}

// A moved lookup comes directly after the step that reads the table first, before lookups that were moved there earlier.
void move_lookups(LoweredGraph& lowered) {
  std::vector<StepPlan>& steps = lowered.steps;
  std::map<int, size_t> first_use;                       // [base] the first step that reads the parameter
  std::vector<std::vector<size_t>> moved(steps.size());  // [step] lookups that move there
  std::vector<bool> moves(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const int table =
        steps[i].operands.empty() || steps[i].operands[0].empty() ? -1 : steps[i].operands[0][0].base;
    if (is_lookup(lowered, steps[i]) && first_use.contains(table)) {
      const size_t to = first_use[table];
      steps[i].node.origin.module = steps[to].node.origin.module;
      steps[i].joined = true;
      moved[to].push_back(i);
      moves[i] = true;
      continue;
    }
    each_base(steps[i], [&](int base) {
      if (lowered.bases[static_cast<size_t>(base)].kind == Base::Kind::Parameter)
        first_use.try_emplace(base, i);
    });
  }
  std::vector<StepPlan> ordered;
  ordered.reserve(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    if (moves[i]) continue;
    ordered.push_back(std::move(steps[i]));
    for (auto lookup = moved[i].rbegin(); lookup != moved[i].rend(); ++lookup)
      ordered.push_back(std::move(steps[*lookup]));
  }
  steps = std::move(ordered);
}

class Cutter {
 public:
  explicit Cutter(LoweredGraph& lowered) : lowered_(lowered), steps_(static_cast<int>(lowered.steps.size())) {
    made_at_.assign(lowered.bases.size(), -1);
    last_read_.assign(lowered.bases.size(), -1);
    for (int i = 0; i < steps_; ++i) {
      const StepPlan& step = lowered.steps[static_cast<size_t>(i)];
      made_at_[static_cast<size_t>(step.output)] = i;
      each_base(step, [&](int base) { last_read_[static_cast<size_t>(base)] = i; });
      groups_.push_back(numbered_module(step.node.origin.module));
    }
    find_crossings();
  }

  void run() {
    int begin = 0, last = -1;  // the last step with a group
    for (int i = 0; i < steps_; ++i) {
      const std::string& group = groups_[static_cast<size_t>(i)];
      if (group.empty()) continue;
      const bool changes = last >= 0 ? group != groups_[static_cast<size_t>(last)] : i > 0;
      if (changes) begin = cut(begin, last + 1, i, last < 0);
      last = i;
    }
    if (last >= 0 && last + 1 < steps_) begin = cut(begin, last + 1, steps_ - 1, false);
    add(begin, steps_);
  }

 private:
  // Ends the block that begins at `begin` between `from` and `to`: steps [from, to) may be on either side. Returns the
  // begin of the next block: `begin` itself if there is no place to cut. Of equal places takes the last, or the first.
  int cut(int begin, int from, int to, bool last) {
    double least = kNoCut;
    int best = begin;
    for (int at = std::max(from, begin + 1); at <= to; ++at) {
      const double size = crossing(at);
      if (size < least || (last && size == least && best > begin)) {
        least = size;
        best = at;
      }
    }
    if (best > begin) add(begin, best);
    return best;
  }

  // A base crosses the cuts after the step that makes it, up to the last step that reads it.
  void find_crossings() {
    crossing_.assign(static_cast<size_t>(steps_) + 1, {});
    made_by_step_.resize(static_cast<size_t>(steps_));
    for (size_t base = 0; base < lowered_.bases.size(); ++base) {
      const int made = made_at_[base], last = last_read_[base];
      if (made < 0 || last <= made) continue;
      const Crossing own{lowered_.bases[base].is_sum ? 1 : 0,
                         static_cast<double>(lowered_.bases[base].elements().at(1))};
      Crossing& begin = crossing_[static_cast<size_t>(made) + 1];
      Crossing& end = crossing_[static_cast<size_t>(last) + 1];
      begin.sums += own.sums, begin.elements += own.elements;
      end.sums -= own.sums, end.elements -= own.elements;
      made_by_step_[static_cast<size_t>(made)].push_back(static_cast<int>(base));
    }
    for (size_t at = 1; at < crossing_.size(); ++at) {
      crossing_[at].sums += crossing_[at - 1].sums;
      crossing_[at].elements += crossing_[at - 1].elements;
    }
  }

  // Elements for one sample that cross; sums must not, and joined steps are not separated.
  double crossing(int at) const {
    const Crossing& here = crossing_[static_cast<size_t>(at)];
    if (lowered_.steps[static_cast<size_t>(at)].joined || here.sums > 0) return kNoCut;
    return here.elements;
  }

  // Blocks are added in their order.
  void add(int begin, int end) {
    BlockPlan block{{}, begin, end, {}};
    for (int i = begin; i < end; ++i) {
      if (block.group.empty()) block.group = groups_[static_cast<size_t>(i)];
      for (const int base : made_by_step_[static_cast<size_t>(i)]) alive_.insert(base);
    }
    if (end == steps_) alive_.clear();
    for (auto base = alive_.begin(); base != alive_.end();)
      base = last_read_[static_cast<size_t>(*base)] < end ? alive_.erase(base) : std::next(base);
    block.leaving.assign(alive_.begin(), alive_.end());
    passed_ += block.leaving.size();
    if (passed_ > kMostPassed)
      bad_input(
          "the {} numbered modules of the model pass on more than {} values to each other, with those that "
          "modules in between only pass on",
          lowered_.blocks.size(), kMostPassed);
    lowered_.blocks.push_back(std::move(block));
  }

  // What crosses a cut: bases that are sums, and elements for one sample, in f64 as their sum may exceed an i64.
  struct Crossing {
    int sums = 0;
    double elements = 0;
  };
  static constexpr double kNoCut = std::numeric_limits<double>::infinity();
  static constexpr size_t kMostPassed = size_t{1} << 22;

  LoweredGraph& lowered_;
  int steps_;
  std::vector<int> made_at_, last_read_;        // [base] steps
  std::vector<std::string> groups_;             // [step]
  std::vector<Crossing> crossing_;              // [step] of a cut before it
  std::vector<std::vector<int>> made_by_step_;  // [step] bases that later steps read
  std::set<int> alive_;                         // bases that leave the last block
  size_t passed_ = 0;                           // entries of BlockPlan::leaving
};

}  // namespace

std::string numbered_module(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (end > begin && path.find_first_not_of("0123456789", begin) >= end)
      return std::string(path.substr(0, end));
    begin = end + 1;
  }
  return {};
}

void cut_into_blocks(LoweredGraph& lowered) {
  move_lookups(lowered);
  Cutter(lowered).run();
}

}  // namespace trifold::graph
