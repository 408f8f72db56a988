#include "plan/layout_memory.h"

#include <algorithm>
#include <cmath>
#include <optional>
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
  run.mesh.data_parallel_size = static_cast<int>(run.mesh.expert_ranks());
  run.mesh.ranks = kWalkedStages * run.mesh.tensor_model_parallel_size * run.mesh.context_parallel_size *
                   *run.mesh.data_parallel_size;
  run.mesh.cut = {};
  run.mesh.cut.pipeline_model_parallel_layout =
      (two_layers ? "Ett|tt|tt" : "Et|t|t") +
      std::string(static_cast<size_t>(run.mesh.pipeline_vocab_parts), 'L');
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
  needs.parts = run.mesh.pipeline_vocab_parts;
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

// The needs of stages of which some layers may have no experts, while others do: `plain` is null if there are none.
struct MixedNeeds {
  const BlockNeeds& blocks;
  const BlockNeeds* plain;
};

// Layers of each stage, those of them that are plain, and parts of the head; `plain` and `heads` may be empty.
struct MixedLayers {
  const std::vector<int>& all;
  const std::vector<int>& plain;
  const std::vector<int>& heads;

  int stages() const { return static_cast<int>(all.size()); }
  double plain_of(int stage) const { return plain.empty() ? 0 : plain[static_cast<size_t>(stage)]; }
  int heads_of(int stage, int parts) const {
    if (!heads.empty()) return heads[static_cast<size_t>(stage)];
    return stage + 1 == stages() ? parts : 0;
  }
  double others_of(int stage) const { return all[static_cast<size_t>(stage)] - plain_of(stage); }
};

// The memory of one rank of a layout.
class RankNeeds {
 public:
  RankNeeds(const PretrainConfig& run, const MixedLayers& layers, const std::vector<StageFlight>& flight)
      : run_(run), layers_(layers), flight_(flight), stages_(layers.stages()) {}

  // `whole`: the additional needs of B, if the schedule has B.
  double activations(const MixedNeeds& needs, const MixedNeeds* whole) const {
    double bytes = 0, flow = 0, scratch = 0;
    for (const StageFlight& use : flight_) {
      bytes += use.slots * sum(needs, &StageNeeds::keep, use.stage) +
               use.pending * sum(needs, &StageNeeds::held, use.stage);
      for (const MixedNeeds* part : {&needs, whole}) {
        if (part == nullptr) continue;
        flow = std::max(flow, most(*part, &StageNeeds::flow, use.stage));
        scratch = std::max(scratch, most(*part, &StageNeeds::scratch, use.stage));
      }
    }
    return bytes + 2 * flow + scratch + messages() * needs.blocks.message;
  }

  double flat(const MixedNeeds& needs, const ZeroSharing& zero) const {
    const double tied = needs.blocks.tied;
    const bool ends_meet = holds(0) && holds(stages_ - 1) && tied > 0;
    const double elements = total(needs, &StageNeeds::weights) - (stages_ > 1 && ends_meet ? tied : 0);
    const double of_experts = total(needs, &StageNeeds::experts);
    const double slice = (elements - of_experts) / zero.group +
                         of_experts / slices_of(kExpertDataAxes, mesh_sizes(run_.mesh), zero.group);
    const double of_ends = end(needs.blocks), of_layers = unit(needs);
    const double passing = 2 * of_layers + of_ends;  // units in memory at one time
    const DType dtype = compute_type(run_.precision);
    const auto bytes = [](double count, size_t each) { return count * static_cast<double>(each); };
    const double held = zero.stage.parameters ? slice + passing : elements;
    const double apart = ends_meet && micros_per_step(run_) > 1 ? tied : 0;
    double gradients = reduces_each(run_) ? slice + passing : elements + apart;
    if (reduce_type(run_.precision) == DType::BF16) gradients += std::max(of_layers, of_ends) / 2;
    const double state = run_.zero.offloads() ? 0 : (zero.stage.optimizer ? slice : elements);
    return bytes(held, size_of(dtype)) + bytes(gradients, size_of(accumulate_type(dtype))) +
           bytes(state, ShardedOptimizer::bytes_per_element(run_.optimizer, dtype));
  }

 private:
  using Part = PerLayers StageNeeds::*;

  // What all layers of a stage need together.
  double sum(const MixedNeeds& needs, Part part, int stage) const {
    const double bytes = (stage_needs(needs.blocks, stage).*part).of(layers_.others_of(stage));
    return needs.plain == nullptr
               ? bytes
               : bytes + layers_.plain_of(stage) * (stage_needs(*needs.plain, stage).*part).layer;
  }

  StageNeeds stage_needs(const BlockNeeds& blocks, int stage) const {
    return blocks.stage(stage, stages_, layers_.heads_of(stage, blocks.parts));
  }

  // What is used again from layer to layer: the larger need of both kinds, if the stage has them.
  double most(const MixedNeeds& needs, Part part, int stage) const {
    const double plain = layers_.plain_of(stage), others = layers_.others_of(stage);
    double bytes = 0;
    if (others > 0 || plain == 0) bytes = (stage_needs(needs.blocks, stage).*part).of(others);
    if (plain > 0) bytes = std::max(bytes, (stage_needs(*needs.plain, stage).*part).of(plain));
    return bytes;
  }

  double total(const MixedNeeds& needs, Part part) const {
    double elements = 0;
    for (const StageFlight& use : flight_) elements += sum(needs, part, use.stage);
    return elements;
  }

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
      count += std::max(use.pending, 1) + (holds(use.stage + 1) ? use.slots : 0);
    }
    const bool first = holds(0), last = holds(stages_ - 1);
    return count + (first ? 0 : 2) + (last ? 0 : 2);
  }

  // Layers of a stage are one unit until it is large enough: the largest unit of either kind.
  double unit(const MixedNeeds& needs) const {
    double others = 0, plain = 0;
    for (const StageFlight& use : flight_) {
      others = std::max(others, layers_.others_of(use.stage));
      plain = std::max(plain, layers_.plain_of(use.stage));
    }
    const auto of_kind = [&](const BlockNeeds& blocks, double most) {
      const double layer = blocks.middle.weights.layer;
      return layer *
             std::min(std::ceil(static_cast<double>(unit_elements(run_.zero)) / std::max(layer, 1.0)), most);
    };
    const double largest = of_kind(needs.blocks, others);
    return needs.plain == nullptr ? largest : std::max(largest, of_kind(*needs.plain, plain));
  }

  // The larger of the ends on this rank: the two are never needed at the same time.
  double end(const BlockNeeds& blocks) const {
    const bool has_head = std::any_of(flight_.begin(), flight_.end(), [&](const StageFlight& use) {
      return layers_.heads_of(use.stage, blocks.parts) > 0;
    });
    return std::max(holds(0) ? blocks.first.weights.none : 0,
                    has_head ? blocks.last.weights.none / blocks.parts : 0);
  }

  const PretrainConfig& run_;
  const MixedLayers& layers_;
  const std::vector<StageFlight>& flight_;
  int stages_;
};

}  // namespace

namespace {

// What one more part of the head, of `parts`, adds to a stage.
PerLayers with_heads(const PerLayers& stage, const PerLayers& middle, const PerLayers& last, int parts,
                     int more) {
  return {stage.none + more * (last.none - middle.none) / parts, stage.layer};
}

}  // namespace

StageNeeds BlockNeeds::stage(int index, int stages, int heads) const {
  if (stages > 1) {
    const bool is_last = index + 1 == stages;
    StageNeeds needs = index == 0 ? first : is_last ? last : middle;
    const int more = heads - (is_last ? parts : 0);
    if (more == 0) return needs;
    const StageNeeds bare = needs;
    for (const auto part : {&StageNeeds::keep, &StageNeeds::held, &StageNeeds::weights})
      needs.*part = with_heads(bare.*part, middle.*part, last.*part, parts, more);
    for (const auto part : {&StageNeeds::flow, &StageNeeds::scratch})
      needs.*part = heads > 0 ? larger(bare.*part, last.*part) : middle.*part;
    return needs;
  }
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
      int slots = 0, pending = 0;
    };
    std::map<int, std::pair<Count, Count>> stages;  // current and highest count
    for (const Action& action : row) {
      if (!is_compute(action.kind)) continue;
      auto& [now, most] = stages[action.stage];
      if (action.kind == ActionKind::F) ++now.slots;
      if (action.kind == ActionKind::I) ++now.pending;
      most = {std::max(most.slots, now.slots), std::max(most.pending, now.pending)};
      if (action.kind == ActionKind::W) --now.pending;
      if (action.kind == ActionKind::W || action.kind == ActionKind::B) --now.slots;
      flight.splits = flight.splits || action.kind == ActionKind::I;
      flight.whole = flight.whole || action.kind == ActionKind::B;
    }
    std::vector<StageFlight>& rank = flight.ranks.emplace_back();
    for (const auto& [stage, counts] : stages)
      rank.push_back({stage, counts.second.slots, counts.second.pending});
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

const BlockNeeds& LayoutMemory::blocks(const PretrainConfig& run, bool split, bool plain) {
  const BlockKey key{run.mesh.tensor_model_parallel_size,
                     run.mesh.context_parallel_size,
                     run.mesh.expert_model_parallel_size,
                     run.mesh.expert_tensor_parallel_size,
                     run.mesh.pipeline_vocab_parts,
                     run.mesh.context_exchange(),
                     run.batch.micro_batch_size,
                     run.mesh.sequence_parallel,
                     run.mesh.recompute_granularity,
                     split,
                     plain};
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  PretrainConfig alike = run;
  alike.model = with_layers_alike(run.model, !plain);
  return blocks_.emplace(key, walk_blocks(alike, split)).first->second;
}

const ScheduleFlight& LayoutMemory::flight(Schedule schedule, int ranks, int chunks, int micros) {
  const FlightKey key{schedule, ranks, chunks, micros};
  const auto found = flights_.find(key);
  if (found != flights_.end()) return found->second;
  return flights_.emplace(key, schedule_flight(schedule, ranks, chunks, micros)).first->second;
}

size_t LayoutMemory::most_bytes(const PretrainConfig& run, const std::vector<int>& layers,
                                const std::vector<int>& plain, const std::vector<int>& heads) {
  const int ranks = run.mesh.pipeline_model_parallel_size;
  const int chunks = static_cast<int>(layers.size()) / ranks;
  const ScheduleFlight& rows =
      flight(chosen_schedule(run.pipeline).value(), ranks, chunks, micros_per_step(run));
  const bool mixed = std::any_of(plain.begin(), plain.end(), [](int count) { return count > 0; });
  const auto needs_of = [&](bool split) {
    return MixedNeeds{blocks(run, split, false), mixed ? &blocks(run, split, true) : nullptr};
  };
  const MixedNeeds needs = needs_of(rows.splits);
  const std::optional<MixedNeeds> whole =
      rows.splits && rows.whole ? std::optional(needs_of(false)) : std::nullopt;
  const ZeroSharing zero = zero_sharing(run);
  const MixedLayers counts{layers, plain, heads};
  double most = 0;
  for (const std::vector<StageFlight>& rank : rows.ranks) {
    const RankNeeds of_rank(run, counts, rank);
    most = std::max(most, of_rank.activations(needs, whole ? &*whole : nullptr) + of_rank.flat(needs, zero));
  }
  return static_cast<size_t>(most) + device_workspace(run);
}

}  // namespace trifold
