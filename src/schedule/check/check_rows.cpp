#include "schedule/check/check_rows.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"
#include "schedule/check/check_action.h"
#include "schedule/check/check_offload.h"
#include "schedule/placement.h"

namespace trifold {

namespace {

// The progress of one micro-batch on one stage.
struct Progress {
  int input = 0;         // the block whose input gradient is next; -1: all are complete
  int weight = 0;        // the block whose weight gradient is next; -1: all are complete
  int version = 0;       // weight version of its forward
  int batch = -1;        // Steps of the stage that precede its weight gradient
  int forwards = 0;      // blocks that have gone forward
  bool forward = false;  // all blocks have
  bool sent_forward = false, received_forward = false;
  bool sent_backward = false, received_backward = false;
};

struct StageState {
  size_t rank = 0;
  int blocks = 1;
  int all_steps = 0;               // in the whole plan
  int steps = 0;                   // so far
  std::vector<int> members = {};   // [Step] micro-batches whose weight gradients precede it
  std::vector<int> complete = {};  // [block] micro-batches of this Step whose gradient is complete
  std::vector<bool> reduced = {};  // [block] since the last Step
  std::vector<int> parts = {};     // [block] reductions of one micro-batch since the last Step
  bool reduces = false;            // whether it has reductions in the plan
  bool tied = false;               // its REDUCE_TIED followed the last Step
  bool unsharded = false;
};

class Rows {
 public:
  Rows(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of)
      : plan_(plan),
        shape_(shape),
        micros_(static_cast<size_t>(shape.micros)),
        stages_(rank_of.size()),
        offloads_(shape),
        at_{plan} {
    items_.resize(stages_.size() * micros_);
    for (size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].rank = static_cast<size_t>(rank_of[s]);
      if (!shape.blocks.empty()) stages_[s].blocks = shape.blocks[s];
      stages_[s].complete.resize(static_cast<size_t>(stages_[s].blocks));
      stages_[s].reduced.resize(static_cast<size_t>(stages_[s].blocks));
      stages_[s].parts.resize(static_cast<size_t>(stages_[s].blocks));
      for (size_t m = 0; m < micros_; ++m)
        items_[s * micros_ + m].input = items_[s * micros_ + m].weight = stages_[s].blocks - 1;
    }
    for (const TiedStage& tied : shape.tied)
      (same_rank(tied.of, tied.stage) ? tied_local_ : tied_remote_).push_back(tied);
  }

  void check_all() {
    for (const RankPlan& row : plan_)
      for (const Action& action : row) look_ahead(action);
    for (StageState& stage : stages_) {
      stage.members.resize(static_cast<size_t>(stage.all_steps) + 1);
      if (stage.all_steps == 1) stage.members[0] = shape_.micros;  // the Step reports missing ones
    }
    for (at_.rank = 0; at_.rank < plan_.size(); ++at_.rank)
      for (at_.index = 0; at_.index < plan_[at_.rank].size(); ++at_.index) take(plan_[at_.rank][at_.index]);
    for (size_t s = 0; s < stages_.size(); ++s) check_complete(s);
  }

 private:
  template <class... Args>
  void require(bool good, fmt::format_string<Args...> why, Args&&... args) const {
    at_.require(good, why, std::forward<Args>(args)...);
  }

  Progress& item(const Action& action) {
    return items_[static_cast<size_t>(action.stage) * micros_ + static_cast<size_t>(action.micro)];
  }
  Progress& item_of(int stage, int micro) { return item({ActionKind::F, stage, Action::kAll, micro}); }
  StageState& stage_of(const Action& action) { return stages_[static_cast<size_t>(action.stage)]; }
  int last_stage() const { return static_cast<int>(stages_.size()) - 1; }
  // Whether the stage runs a backward.
  bool has_backward(int stage) const { return !shape_.forward_only && stage >= shape_.without_backward; }
  bool same_rank(int stage, int other) const {
    return stages_[static_cast<size_t>(stage)].rank == stages_[static_cast<size_t>(other)].rank;
  }

  // Counts Steps, and the micro-batches that belong to each.
  void look_ahead(const Action& action) {
    StageState& stage = stage_of(action);
    if (action.kind == ActionKind::Step) ++stage.all_steps;
    if (action.kind == ActionKind::ReduceGrad) stage.reduces = true;
    if (action.kind == ActionKind::Unshard) gathers_ = true;
    const bool weight = action.kind == ActionKind::B || action.kind == ActionKind::W;
    if (!weight || !is_micro_of(shape_, action) || item(action).batch >= 0) return;
    item(action).batch = stage.all_steps;
    stage.members.resize(static_cast<size_t>(stage.all_steps) + 1);
    ++stage.members.back();
  }

  void take(const Action& action) {
    const StageState& stage = stage_of(action);
    check_fields(at_, action, shape_, stage.blocks);
    require(!(is_compute(action.kind) || action.kind == ActionKind::ReduceGrad) || shape_.forward_only ||
                stage.steps < stage.all_steps || stage.all_steps == 0,
            "comes after the last Step of its stage");
    if (action.overlaps_next) check_pair(at_, action);
    switch (action.kind) {
      case ActionKind::F:
        return forward(action);
      case ActionKind::I:
        return input_gradient(action);
      case ActionKind::W:
        return weight_gradient(action);
      case ActionKind::B:
        input_gradient(action);
        return weight_gradient(action);
      case ActionKind::SendF:
      case ActionKind::RecvF:
        return forward_message(action);
      case ActionKind::SendB:
      case ActionKind::RecvB:
        return backward_message(action);
      case ActionKind::Unshard:
      case ActionKind::Reshard:
        return residency(action);
      case ActionKind::Offload:
      case ActionKind::Fetch:
        return offloads_.take(at_, action, item(action).forwards, item(action).input);
      case ActionKind::ReduceTied:
        return reduce_tied(action);
      case ActionKind::ReduceGrad:
        return reduce(action);
      case ActionKind::Step:
        return step(action);
      default:
        require(!is_of_tables(action.kind), "is of a model with embedding tables");
    }
  }

  // Checks that weights are gathered for actions that read them, if the plan has UNSHARDs.
  void check_gathered(const Action& action) {
    require(!gathers_ || stage_of(action).unsharded,
            "uses weights that are not gathered: {}UNSHARD must come before it, with no {}RESHARD between",
            action.stage, action.stage);
  }

  void forward(const Action& action) {
    Progress& progress = item(action);
    check_gathered(action);
    const int blocks = stage_of(action).blocks;
    require(!progress.forward, "is a second forward of its micro-batch");
    require(action.block == Action::kAll ? progress.forwards == 0 : progress.forwards == action.block,
            "repeats or skips a forward of its micro-batch");
    require(progress.forwards == 0 || progress.version == action.version,
            "uses weight version {}, the blocks before it {}", action.version, progress.version);
    require(0 <= action.version && action.version <= stage_of(action).steps,
            "uses weights that are not made yet: its stage has had {} Steps", stage_of(action).steps);
    if (action.stage > 0 && same_rank(action.stage, action.stage - 1))
      require(item_of(action.stage - 1, action.micro).forward,
              "comes before the forward of the stage before");
    else if (action.stage > 0)
      require(progress.received_forward, "comes before the receive of its input, {}RECV_F{}", action.stage,
              action.micro);
    progress.forwards = action.block == Action::kAll ? blocks : action.block + 1;
    progress.forward = progress.forwards == blocks;
    progress.version = action.version;
  }

  void require_backward(int stage) const {
    require(stage >= shape_.without_backward, "is of a backward, which the first {} stages have not: {}",
            shape_.without_backward, "none of their weights is trained");
  }

  // Checks the order of blocks, from last to first; `next` is the block that must be next.
  void advance(const Action& action, int& next) const {
    require(action.block == Action::kAll ? next == stages_[static_cast<size_t>(action.stage)].blocks - 1
                                         : next == action.block,
            "repeats or skips a gradient of its micro-batch");
    next = action.block == Action::kAll ? -1 : action.block - 1;
  }

  void input_gradient(const Action& action) {
    require_backward(action.stage);
    Progress& progress = item(action);
    check_gathered(action);
    offloads_.check_read(at_, action, stage_of(action).blocks);
    require(progress.forward, "comes before the forward of its micro-batch");
    require(progress.version == action.version, "uses weight version {}, its forward used {}", action.version,
            progress.version);
    if (action.stage < last_stage() && same_rank(action.stage, action.stage + 1))
      require(item_of(action.stage + 1, action.micro).input < 0,
              "comes before the gradient of the next stage");
    else if (action.stage < last_stage())
      require(progress.received_backward, "comes before the receive of its gradient, {}RECV_B{}",
              action.stage, action.micro);
    advance(action, progress.input);
  }

  void weight_gradient(const Action& action) {
    Progress& progress = item(action);
    StageState& stage = stage_of(action);
    offloads_.check_read(at_, action, stage_of(action).blocks);
    require(progress.forward, "comes before the forward of its micro-batch");
    require(progress.version == action.version, "uses weight version {}, its forward used {}", action.version,
            progress.version);
    const int from = action.block == Action::kAll ? stage.blocks - 1 : action.block;
    advance(action, progress.weight);
    require(progress.input <= progress.weight, "comes before its I");
    require(progress.batch == stage.steps, "adds to a micro-batch of which a Step has used a part");
    for (int block = from; block > progress.weight; --block) ++stage.complete[static_cast<size_t>(block)];
  }

  bool complete(const StageState& stage, int block) const {
    return stage.complete[static_cast<size_t>(block)] == stage.members[static_cast<size_t>(stage.steps)];
  }

  // Checks that the stage at the other end of a message exists and is on another rank.
  void check_border(const Action& action, int neighbour) const {
    require(0 <= neighbour && neighbour <= last_stage(), "has no stage at the other end");
    require(!same_rank(action.stage, neighbour),
            "is a message between stages {} and {}, which are on one rank", action.stage, neighbour);
  }

  void once(bool& done) const {
    require(!done, "repeats a message");
    done = true;
  }

  void forward_message(const Action& action) {
    const bool send = action.kind == ActionKind::SendF;
    check_border(action, send ? action.stage + 1 : action.stage - 1);
    if (send) require(item(action).forward, "comes before its data are computed");
    once(send ? item(action).sent_forward : item(action).received_forward);
  }

  void backward_message(const Action& action) {
    const bool send = action.kind == ActionKind::SendB;
    check_border(action, send ? action.stage - 1 : action.stage + 1);
    require_backward(send ? action.stage - 1 : action.stage);
    if (send) require(item(action).input < 0, "comes before its data are computed");
    once(send ? item(action).sent_backward : item(action).received_backward);
  }

  void residency(const Action& action) {
    StageState& stage = stage_of(action);
    const bool gather = action.kind == ActionKind::Unshard;
    require(stage.unsharded != gather, "finds its weights {}",
            gather ? "gathered already" : "not gathered, so there is nothing to release");
    stage.unsharded = gather;
  }

  void reduce_tied(const Action& action) {
    StageState& stage = stage_of(action);
    require(!tied_remote_.empty(), "has nothing to reduce: no weight is shared between two ranks");
    require(action.stage == 0 || reduces_tied_at(action.stage),
            "is not the first stage, nor the last of its rank that shares a weight with it");
    require(stage.steps < stage.all_steps, "comes after the last Step of its stage");
    require(complete(stage, 0), "comes before the last gradient of its stage");
    require(!stage.tied, "is a second one before one Step");
    stage.tied = true;
    for (const TiedStage& tied : tied_remote_) {
      if (!same_rank(tied.stage, action.stage)) continue;
      StageState& other = stages_[static_cast<size_t>(tied.stage)];
      require(complete(other, 0), "comes before the last gradient of stage {}", tied.stage);
      other.tied = true;
    }
  }

  // Whether the stage is the last of its rank's stages that share the first stage's weight from another rank.
  bool reduces_tied_at(int stage) const {
    bool found = false;
    for (const TiedStage& tied : tied_remote_) {
      if (tied.stage > stage && same_rank(tied.stage, stage)) return false;
      found = found || tied.stage == stage;
    }
    return found;
  }

  void reduce(const Action& action) {
    StageState& stage = stage_of(action);
    const int block = std::max(action.block, 0);
    require(stage.steps < stage.all_steps, "is not followed by a Step of its stage");
    if (!shape_.bucket_ends.empty()) check_bucket(action);
    if (reduces_one_micro(shape_, action)) return reduce_one_micro(action, block);
    require(complete(stage, block), "comes before the last gradient of its block");
    require(tied_remote_.empty() || action.stage != 0 || block != 0 || stage.tied,
            "comes before the REDUCE_TIED of its stage");
    for (const TiedStage& tied : tied_local_)
      require(action.stage != tied.of || block != 0 || complete(stages_[static_cast<size_t>(tied.stage)], 0),
              "comes before the last gradient of stage {}, which shares a weight with it", tied.stage);
    const auto begin = stage.reduced.begin() + block;
    const auto end = action.block == Action::kAll ? stage.reduced.end() : begin + 1;
    require(std::none_of(begin, end, [](bool done) { return done; }), "is a second reduction of its bucket");
    std::fill(begin, end, true);
  }

  // A reduction covers the gradients that this and other micro-batches have added before it. Each reduction follows its
  // own micro-batch's gradient, so the last reduction follows the last gradient.
  void reduce_one_micro(const Action& action, int block) {
    require(item(action).weight < block, "comes before the gradient of its block for its micro-batch");
    for (const TiedStage& tied : tied_local_)
      require(action.stage != tied.of || block != 0 || item_of(tied.stage, action.micro).weight < tied.block,
              "comes before the gradient of stage {} for its micro-batch, which shares a weight with it",
              tied.stage);
    require(parts_.insert({action.stage, block, action.micro}).second,
            "is a second reduction of its micro-batch");
    ++stage_of(action).parts[static_cast<size_t>(block)];
  }

  void check_bucket(const Action& action) const {
    const std::vector<int>& ends = shape_.bucket_ends.at(static_cast<size_t>(action.stage));
    require(action.block != Action::kAll || ends.size() == 1, "names no block, but its stage has {} buckets",
            ends.size());
    const bool found = std::find(ends.begin(), ends.end(), std::max(action.block, 0)) != ends.end();
    require(found, "is at block {}, where no bucket ends", action.block);
  }

  void check_reduced(const Action& step, int end) {
    const StageState& stage = stage_of(step);
    const auto block = static_cast<size_t>(end);
    if (!is_each(shape_, step.stage, end))
      return require(stage.reduced[block], "comes before the reduction of the bucket that ends at block {}",
                     end);
    const int micros = stage.members[static_cast<size_t>(stage.steps)];
    require(stage.parts[block] == micros,
            "comes after {} reductions of the bucket that ends at block {}, "
            "which takes one for each of {} micro-batches",
            stage.parts[block], end, micros);
  }

  void step(const Action& action) {
    StageState& stage = stage_of(action);
    const auto now = static_cast<size_t>(stage.steps);
    if (has_backward(action.stage)) {
      require(stage.members[now] > 0, "has no gradient since the Step before");
      require(complete(stage, 0), "comes before the last gradient: {} of {} micro-batches are complete",
              stage.complete[0], stage.members[now]);
    }
    require(!stage.reduces || stage.reduced[0] || is_each(shape_, action.stage, 0),
            "comes before the reduction of block 0");
    if (!shape_.bucket_ends.empty())
      for (int end : shape_.bucket_ends.at(static_cast<size_t>(action.stage))) check_reduced(action, end);
    const bool shares =
        !tied_remote_.empty() &&
        (action.stage == 0 || std::any_of(tied_remote_.begin(), tied_remote_.end(),
                                          [&](const TiedStage& tied) { return tied.stage == action.stage; }));
    require(!shares || stage.tied, "comes before the REDUCE_TIED of its stage");
    ++stage.steps;
    stage.tied = false;
    std::fill(stage.complete.begin(), stage.complete.end(), 0);
    std::fill(stage.reduced.begin(), stage.reduced.end(), false);
    std::fill(stage.parts.begin(), stage.parts.end(), 0);
  }

  // Checks that are only possible at the end of the rows.
  void check_complete(size_t s) {
    const auto stage = static_cast<int>(s);
    const auto missing = [&](bool good, std::string_view what, int micro) {
      if (!good)
        bad_input("the plan is wrong: rank {} never reaches {}{}{}", stages_[s].rank, stage, what,
                  micro < 0 ? std::string() : std::to_string(micro));
    };
    const bool backward = has_backward(stage);
    const bool sends = stage > 0 && has_backward(stage - 1);
    for (int micro = 0; micro < shape_.micros; ++micro) {
      const Progress& progress = item_of(stage, micro);
      missing(progress.forward, "F", micro);
      missing(!backward || progress.weight < 0, progress.input < 0 ? "W" : "B", micro);
      if (stage > 0 && !same_rank(stage, stage - 1)) {
        missing(progress.received_forward, "RECV_F", micro);
        missing(!sends || progress.sent_backward, "SEND_B", micro);
      }
      if (stage < last_stage() && !same_rank(stage, stage + 1)) {
        missing(progress.sent_forward, "SEND_F", micro);
        missing(!backward || progress.received_backward, "RECV_B", micro);
      }
      const int first = shape_.without_backward;
      if (backward && progress.batch != item_of(first, micro).batch)
        bad_input("the plan is wrong: micro-batch {} is in Step {} of stage {}, but in Step {} of stage {}",
                  micro, item_of(first, micro).batch + 1, first, progress.batch + 1, stage);
    }
    missing(shape_.forward_only || stages_[s].all_steps > 0, "STEP", -1);
  }

  const Plan& plan_;
  const PlanShape& shape_;
  size_t micros_;
  std::vector<StageState> stages_;
  std::vector<Progress> items_;                // [stage, micro]
  std::set<std::tuple<int, int, int>> parts_;  // stage, block, micro: reductions of one micro-batch
  OffloadCheck offloads_;
  // Tied stages on the rank of the earlier stage, and on other ranks.
  std::vector<TiedStage> tied_local_, tied_remote_;
  bool gathers_ = false;  // the plan has UNSHARDs
  PlanPosition at_;       // the current action
};

}  // namespace

void check_rows(const Plan& plan, const PlanShape& shape, const std::vector<int>& rank_of) {
  Rows(plan, shape, rank_of).check_all();
}

}  // namespace trifold
