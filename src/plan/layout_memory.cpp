#include "plan/layout_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/fields/pipeline_choice.h"
#include "layout/device_workspace.h"
#include "layout/rank_layout.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "plan/step_plan.h"
#include "schedule/passes.h"
#include "schedule/schedules.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

// ---- Walks of three stages ----

constexpr int kWalkedStages = 3;

// One micro-batch forward and back on each of three ranks.
Plan walked_plan(bool split) {
  Plan plan;
  for (int stage = 0; stage < kWalkedStages; ++stage) {
    const auto action = [&](ActionKind kind) { return Action{kind, stage, Action::kAll, 0}; };
    if (split)
      plan.push_back({action(ActionKind::F), action(ActionKind::I), action(ActionKind::W)});
    else
      plan.push_back({action(ActionKind::F), action(ActionKind::B)});
  }
  return add_communication(std::move(plan));
}

PretrainConfig three_stages(PretrainConfig run, bool two_layers) {
  run.model.num_layers = two_layers ? 2 * kWalkedStages : kWalkedStages;
  run.mesh.pipeline_model_parallel_size = kWalkedStages;
  run.mesh.data_parallel_size = run.mesh.expert_model_parallel_size;
  run.mesh.ranks = kWalkedStages * run.mesh.tensor_model_parallel_size * run.mesh.context_parallel_size *
                   *run.mesh.data_parallel_size;
  run.mesh.cut = {};
  run.mesh.cut.pipeline_model_parallel_layout = two_layers ? "Ett|tt|ttL" : "Et|t|tL";
  run.zero = {};
  return run;
}

struct WalkedStages {
  std::array<ActivationMemory, kWalkedStages> memory;
  std::array<int64_t, kWalkedStages> weights{}, experts{};
  int64_t tied = 0;
};

WalkedStages walk(const PretrainConfig& run, bool split) {
  const MeshSizes sizes = mesh_sizes(run.mesh);
  const CutModel model(run.model, run.mesh, Mesh(sizes, {}), run.seed, {});
  const Plan plan = walked_plan(split);
  WalkedStages walked;
  for (int rank = 0; rank < kWalkedStages; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const RankLayout layout(model, sizes, MeshCoords{{Axis::Pp, rank}}, run.zero, ZeroSharing{});
    walked.memory[at] = layout.activations(plan[at], run.batch.micro_batch_size, run.model.seq_length,
                                           compute_type(run.precision));
    const CutModel::Elements elements = model.elements_of(at);
    walked.weights[at] = elements.weights;
    walked.experts[at] = elements.experts;
  }
  for (const ParamSpec& spec : model.model.params.specs())
    if (spec.tied_to) walked.tied += spec.shard.local.elements();
  return walked;
}

PerLayers line_through(double one, double two) { return {2 * one - two, two - one}; }

StageNeeds needs_of(const WalkedStages& one, const WalkedStages& two, size_t stage) {
  const ActivationMemory& a = one.memory[stage];
  const ActivationMemory& b = two.memory[stage];
  const auto line = [](auto x, auto y) {
    return line_through(static_cast<double>(x), static_cast<double>(y));
  };
  return {line(a.stages[0].keep, b.stages[0].keep),
          line(a.stages[0].held, b.stages[0].held),
          line(a.flow, b.flow),
          line(a.scratch, b.scratch),
          line(one.weights[stage], two.weights[stage]),
          line(one.experts[stage], two.experts[stage])};
}

BlockNeeds walk_blocks(const PretrainConfig& run, bool split) {
  const WalkedStages one = walk(three_stages(run, false), split);
  const WalkedStages two = walk(three_stages(run, true), split);
  BlockNeeds needs{needs_of(one, two, 0), needs_of(one, two, 1), needs_of(one, two, 2), 0, 0};
  needs.message = static_cast<double>(one.memory[1].message);
  needs.tied = static_cast<double>(one.tied);
  return needs;
}

// Both ends on one stage.
PerLayers both_ends(const PerLayers& first, const PerLayers& middle, const PerLayers& last) {
  return {first.none + last.none - middle.none, middle.layer};
}

PerLayers larger(const PerLayers& a, const PerLayers& b) {
  return {std::max(a.none, b.none), std::max(a.layer, b.layer)};
}

// ---- One rank ----

// The memory of one rank of a layout.
class RankNeeds {
 public:
  RankNeeds(const PretrainConfig& run, const std::vector<int>& layers, const std::vector<StageFlight>& flight)
      : run_(run), layers_(layers), flight_(flight), stages_(static_cast<int>(layers.size())) {}

  // `whole`: the additional needs of B, if the schedule has B.
  double activations(const BlockNeeds& blocks, const BlockNeeds* whole) const {
    double bytes = 0, flow = 0, scratch = 0;
    for (const StageFlight& use : flight_) {
      const StageNeeds needs = blocks.stage(use.stage, stages_);
      const double count = layers_of_stage(use.stage);
      bytes += use.slots * needs.keep.of(count) + use.helds * needs.held.of(count);
      flow = std::max(flow, needs.flow.of(count));
      scratch = std::max(scratch, needs.scratch.of(count));
      if (whole == nullptr) continue;
      const StageNeeds together = whole->stage(use.stage, stages_);
      flow = std::max(flow, together.flow.of(count));
      scratch = std::max(scratch, together.scratch.of(count));
    }
    return bytes + 2 * flow + scratch + messages() * blocks.message;
  }

  double flat(const BlockNeeds& blocks, const ZeroSharing& zero) const {
    const double elements = weights(blocks);
    const bool ends_meet = holds(0) && holds(stages_ - 1) && blocks.tied > 0;
    const double of_experts = experts(blocks);
    const double slice = (elements - of_experts) / zero.group +
                         of_experts / slices_of(kExpertDataAxes, mesh_sizes(run_.mesh), zero.group);
    const double passing = 2 * unit(blocks) + end(blocks);  // units in memory at one time
    const DType dtype = compute_type(run_.precision);
    const auto bytes = [](double count, size_t each) { return count * static_cast<double>(each); };
    const double held = zero.stage.parameters ? slice + passing : elements;
    const double apart = ends_meet && micros_per_step(run_) > 1 ? blocks.tied : 0;
    double gradients = reduces_each(run_) ? slice + passing : elements + apart;
    if (reduce_type(run_.precision) == DType::BF16) gradients += std::max(unit(blocks), end(blocks)) / 2;
    const double state = run_.zero.offloads() ? 0 : (zero.stage.optimizer ? slice : elements);
    return bytes(held, size_of(dtype)) + bytes(gradients, size_of(accumulate_type(dtype))) +
           bytes(state, ShardedOptimizer::bytes_per_element(run_.optimizer, dtype));
  }

 private:
  double layers_of_stage(int stage) const { return layers_[static_cast<size_t>(stage)]; }

  bool holds(int stage) const {
    return std::any_of(flight_.begin(), flight_.end(),
                       [&](const StageFlight& use) { return use.stage == stage; });
  }

  // The input of a micro-batch in flight is a message, or, if the previous stage is on this rank too, that stage's kept
  // output. The same holds for the gradient of its output until its last backward. One output or input gradient is
  // being sent at a time, one gradient is being received, and the executor allocates two more than its plan needs.
  double messages() const {
    if (stages_ == 1) return 0;
    double count = 2;
    for (const StageFlight& use : flight_) {
      if (use.stage > 0 && !holds(use.stage - 1)) count += use.slots;
      if (use.stage + 1 == stages_) continue;
      count += std::max(use.helds, 1) + (holds(use.stage + 1) ? use.slots : 0);
    }
    const bool first = holds(0), last = holds(stages_ - 1);
    return count + (first ? 0 : 2) + (last ? 0 : 2);
  }

  double weights(const BlockNeeds& blocks) const {
    double elements = 0;
    for (const StageFlight& use : flight_)
      elements += blocks.stage(use.stage, stages_).weights.of(layers_of_stage(use.stage));
    return elements - (stages_ > 1 && holds(0) && holds(stages_ - 1) ? blocks.tied : 0);
  }

  double experts(const BlockNeeds& blocks) const {
    double elements = 0;
    for (const StageFlight& use : flight_)
      elements += blocks.stage(use.stage, stages_).experts.of(layers_of_stage(use.stage));
    return elements;
  }

  // Layers of a stage are one unit until it is large enough.
  double unit(const BlockNeeds& blocks) const {
    const double layer = blocks.middle.weights.layer;
    double most = 0;
    for (const StageFlight& use : flight_) most = std::max(most, layers_of_stage(use.stage));
    const double enough = std::ceil(static_cast<double>(unit_elements(run_.zero)) / std::max(layer, 1.0));
    return layer * std::min(enough, most);
  }

  // The larger of the ends on this rank: the two are never needed at the same time.
  double end(const BlockNeeds& blocks) const {
    return std::max(holds(0) ? blocks.first.weights.none : 0,
                    holds(stages_ - 1) ? blocks.last.weights.none : 0);
  }

  const PretrainConfig& run_;
  const std::vector<int>& layers_;
  const std::vector<StageFlight>& flight_;
  int stages_;
};

}  // namespace

StageNeeds BlockNeeds::stage(int index, int stages) const {
  if (stages > 1) return index == 0 ? first : index + 1 == stages ? last : middle;
  StageNeeds all{both_ends(first.keep, middle.keep, last.keep),
                 both_ends(first.held, middle.held, last.held),
                 larger(first.flow, last.flow),
                 larger(first.scratch, last.scratch),
                 both_ends(first.weights, middle.weights, last.weights),
                 both_ends(first.experts, middle.experts, last.experts)};
  all.weights.none -= tied;  // one weight, used twice
  return all;
}

ScheduleFlight flight_of(const Plan& plan) {
  ScheduleFlight flight;
  for (const RankPlan& row : plan) {
    struct Count {
      int slots = 0, helds = 0;
    };
    std::map<int, std::pair<Count, Count>> stages;  // current and highest count
    for (const Action& action : row) {
      if (!is_compute(action.kind)) continue;
      auto& [now, most] = stages[action.stage];
      if (action.kind == ActionKind::F) ++now.slots;
      if (action.kind == ActionKind::I) ++now.helds;
      most = {std::max(most.slots, now.slots), std::max(most.helds, now.helds)};
      if (action.kind == ActionKind::W) --now.helds;
      if (action.kind == ActionKind::W || action.kind == ActionKind::B) --now.slots;
      flight.splits = flight.splits || action.kind == ActionKind::I;
      flight.whole = flight.whole || action.kind == ActionKind::B;
    }
    std::vector<StageFlight>& rank = flight.ranks.emplace_back();
    for (const auto& [stage, counts] : stages)
      rank.push_back({stage, counts.second.slots, counts.second.helds});
  }
  return flight;
}

ScheduleFlight schedule_flight(Schedule schedule, int ranks, int chunks, int micros) {
  const bool one = ranks == 1 && chunks == 1;
  // gpipe keeps all; the others are in their steady state after the first micro-batches.
  const int enough = 3 * ranks + micros % ranks;
  const int walked = schedule == Schedule::Gpipe ? micros : std::min(micros, enough);
  return flight_of(one ? one_stage(std::min(micros, 2)) : make_schedule(schedule, ranks, chunks, walked));
}

const BlockNeeds& LayoutMemory::blocks(const PretrainConfig& run, bool split) {
  const BlockKey key{run.mesh.tensor_model_parallel_size, run.mesh.context_parallel_size,
                     run.mesh.expert_model_parallel_size, run.mesh.context_exchange(),
                     run.batch.micro_batch_size,          run.mesh.sequence_parallel,
                     run.mesh.recompute_granularity,      split};
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  return blocks_.emplace(key, walk_blocks(run, split)).first->second;
}

const ScheduleFlight& LayoutMemory::flight(Schedule schedule, int ranks, int chunks, int micros) {
  const FlightKey key{schedule, ranks, chunks, micros};
  const auto found = flights_.find(key);
  if (found != flights_.end()) return found->second;
  return flights_.emplace(key, schedule_flight(schedule, ranks, chunks, micros)).first->second;
}

size_t LayoutMemory::most_bytes(const PretrainConfig& run, const std::vector<int>& layers) {
  const int ranks = run.mesh.pipeline_model_parallel_size;
  const int chunks = static_cast<int>(layers.size()) / ranks;
  const ScheduleFlight& rows =
      flight(chosen_schedule(run.pipeline).value(), ranks, chunks, micros_per_step(run));
  const BlockNeeds& needs = blocks(run, rows.splits);
  const BlockNeeds* whole = rows.splits && rows.whole ? &blocks(run, false) : nullptr;
  const ZeroSharing zero = zero_sharing(run);
  double most = 0;
  for (const std::vector<StageFlight>& rank : rows.ranks) {
    const RankNeeds of_rank(run, layers, rank);
    most = std::max(most, of_rank.activations(needs, whole) + of_rank.flat(needs, zero));
  }
  return static_cast<size_t>(most) + device_workspace(run);
}

}  // namespace trifold
