#include "pipeline/check.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"

namespace trifold {

namespace {

// What has happened so far on one stage.
class StageProgress {
 public:
  StageProgress(int micros, int blocks) : micros_(micros), blocks_(blocks) {}

  void take(const Action& action) {
    require(!stepped_, action, "comes after the stage's Step");
    switch (action.kind) {
      case ActionKind::F:
        return forward(action);
      case ActionKind::I:
        return backward(action, input_, false);
      case ActionKind::W:
        return backward(action, weight_, true);
      case ActionKind::B:
        backward(action, input_, false);
        return backward(action, weight_, true);
      case ActionKind::ReduceGrad:
        return reduce(action);
      case ActionKind::Step:
        return step(action);
      default:
        require(false, action, "has no place in the plan of one stage");
    }
  }

  bool stepped() const { return stepped_; }

 private:
  static void require(bool good, const Action& action, std::string_view why) {
    check(good, "the plan is wrong at {}: it {}", to_string(action), why);
  }

  void forward(const Action& action) {
    require(0 <= action.micro && action.micro < micros_, action, "names a micro-batch that does not exist");
    require(action.block == Action::kAll, action, "must be forward of the whole stage");
    require(forward_.insert(action.micro).second, action, "is a second forward of its micro-batch");
  }

  // `next` maps a micro-batch to the block whose gradient comes next: blocks go from the last to the first.
  void backward(const Action& action, std::map<int, int>& next, bool weights) {
    require(forward_.contains(action.micro), action, "comes before the forward of its micro-batch");
    int& block = next.try_emplace(action.micro, blocks_ - 1).first->second;
    const int last = action.block == Action::kAll ? 0 : action.block;
    require(action.block == Action::kAll ? block == blocks_ - 1 : block == last, action,
            "repeats or skips a block's backward");
    block = last - 1;
    if (weights)
      require(input_.contains(action.micro) && input_[action.micro] <= block, action, "comes before its I");
  }

  bool complete(int block) const {
    if (static_cast<int>(weight_.size()) != micros_) return false;
    return std::all_of(weight_.begin(), weight_.end(),
                       [&](const auto& entry) { return entry.second < block; });
  }

  void reduce(const Action& action) {
    const int block = action.block == Action::kAll ? 0 : action.block;
    require(0 <= block && block < blocks_, action, "names a block that does not exist");
    require(complete(block), action, "comes before the last gradient of its block");
    require(reduced_.insert(block).second, action, "is a second reduction of its bucket");
  }

  void step(const Action& action) {
    require(complete(0), action, "comes before the last gradient");
    stepped_ = true;
  }

  int micros_, blocks_;
  std::set<int> forward_, reduced_;
  std::map<int, int> input_, weight_;
  bool stepped_ = false;
};

}  // namespace

void check_plan(const Plan& plan, int micros, std::span<const int> blocks) {
  std::vector<StageProgress> stages;
  for (int count : blocks) stages.emplace_back(micros, count);
  for (const RankPlan& actions : plan)
    for (const Action& action : actions) {
      check(0 <= action.stage && action.stage < static_cast<int>(stages.size()),
            "the plan is wrong at {}: there are {} stages", to_string(action), stages.size());
      stages[static_cast<size_t>(action.stage)].take(action);
    }
  for (size_t stage = 0; stage < stages.size(); ++stage)
    check(stages[stage].stepped(), "the plan is wrong: stage {} never reaches its Step", stage);
}

}  // namespace trifold
