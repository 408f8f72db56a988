#include "graph/lower/cut.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "graph/lower/rules.h"

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

void move_lookups(LoweredGraph& lowered) {
  std::vector<StepPlan>& steps = lowered.steps;
  std::map<int, size_t> first_use;  // [base] the first step that reads the parameter
  for (size_t i = 0; i < steps.size(); ++i) {
    const int table =
        steps[i].operands.empty() || steps[i].operands[0].empty() ? -1 : steps[i].operands[0][0].base;
    if (is_lookup(lowered, steps[i]) && first_use.contains(table)) {
      steps[i].node.origin.module = steps[first_use[table]].node.origin.module;
      steps[i].joined = true;
      const auto to = static_cast<std::ptrdiff_t>(first_use[table]) + 1;
      const auto from = static_cast<std::ptrdiff_t>(i);
      std::rotate(steps.begin() + to, steps.begin() + from, steps.begin() + from + 1);
      for (auto& [base, use] : first_use)
        if (static_cast<std::ptrdiff_t>(use) >= to) ++use;
      continue;
    }
    each_base(steps[i], [&](int base) {
      if (lowered.bases[static_cast<size_t>(base)].kind == Base::Kind::Parameter)
        first_use.try_emplace(base, i);
    });
  }
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
    int64_t least = std::numeric_limits<int64_t>::max();
    int best = begin;
    for (int at = std::max(from, begin + 1); at <= to; ++at) {
      const int64_t size = crossing(at);
      if (size < least || (last && size == least && best > begin)) {
        least = size;
        best = at;
      }
    }
    if (best > begin) add(begin, best);
    return best;
  }

  bool crosses(size_t base, int at) const {
    return made_at_[base] >= 0 && made_at_[base] < at && last_read_[base] >= at;
  }

  // Elements for one sample that cross; sums must not, and joined steps are not separated.
  int64_t crossing(int at) const {
    if (lowered_.steps[static_cast<size_t>(at)].joined) return std::numeric_limits<int64_t>::max();
    int64_t size = 0;
    for (size_t base = 0; base < lowered_.bases.size(); ++base) {
      if (!crosses(base, at)) continue;
      if (lowered_.bases[base].is_sum) return std::numeric_limits<int64_t>::max();
      size += lowered_.bases[base].elements().at(1);
    }
    return size;
  }

  void add(int begin, int end) {
    BlockPlan block{{}, begin, end, {}};
    for (int i = begin; i < end; ++i)
      if (block.group.empty()) block.group = groups_[static_cast<size_t>(i)];
    for (size_t base = 0; base < lowered_.bases.size(); ++base)
      if (end < steps_ && crosses(base, end)) block.leaving.push_back(static_cast<int>(base));
    lowered_.blocks.push_back(std::move(block));
  }

  LoweredGraph& lowered_;
  int steps_;
  std::vector<int> made_at_, last_read_;  // [base] steps
  std::vector<std::string> groups_;       // [step]
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
