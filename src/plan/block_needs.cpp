#include "plan/block_needs.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "layout/rank_layout.h"
#include "mesh/mesh_sizes.h"
#include "schedule/passes.h"

namespace trifold {

namespace {

// ---- Three stages ----

constexpr int kStages = 3;

RunSpec three_stages(RunSpec run, bool two_layers) {
  run.model.num_layers = two_layers ? 2 * kStages : kStages;
  run.mesh.pipeline_model_parallel_size = kStages;
  run.mesh.data_parallel_size = static_cast<int>(run.mesh.expert_ranks());
  run.mesh.ranks = kStages * run.mesh.tensor_model_parallel_size * run.mesh.context_parallel_size *
                   *run.mesh.data_parallel_size;
  run.mesh.cut = {};
  run.mesh.cut.pipeline_model_parallel_layout =
      (two_layers ? "Ett|tt|tt" : "Et|t|t") +
      std::string(static_cast<size_t>(run.mesh.pipeline_vocab_parts), 'L');
  run.zero = {};
  return run;
}

// A pipeline of three stages, each on a separate rank.
class ThreeStages {
 public:
  ThreeStages(const RunSpec& run, bool two_layers, LayerBackward backward = LayerBackward::Whole)
      : run_(three_stages(run, two_layers)),
        sizes_(mesh_sizes(run_.mesh)),
        model_(run_.model, run_.mesh, Mesh(sizes_, {}), run_.seed, {{}, TokenLookups::FirstStage}),
        backward_(backward) {
    // If the embedding is frozen, these layers stand for layers above and below the first that is trained.
    Model& model = model_.model;
    if (model.blocks.front().backward != BlockBackward::None) return;
    model.give_layers_backward();
    if (backward_ != LayerBackward::None) return;
    for (const int layer : model.layers())
      model.blocks[static_cast<size_t>(layer)].backward = BlockBackward::None;
  }

  const CutModel& model() const { return model_; }

  // The memory of one micro-batch forward and backward, or of several whose halves alternate.
  ActivationMemory walk(int stage) const {
    const RankLayout layout(model_, sizes_, MeshCoords{{Axis::Pp, stage}}, run_.zero, ZeroSharing{});
    const bool turns = backward_ == LayerBackward::Whole && run_.mesh.overlap_moe_expert_parallel_comm;
    return layout.activations((turns ? plan_of_pairs() : plan(backward_))[static_cast<size_t>(stage)],
                              run_.micro_batch_size, run_.model.seq_length, run_.layer_type());
  }

 private:
  static const Plan& plan(LayerBackward backward) {
    static const std::array<Plan, 3> kPlans{make_plan(LayerBackward::Whole), make_plan(LayerBackward::Split),
                                            make_plan(LayerBackward::None)};
    return kPlans[static_cast<size_t>(backward)];
  }

  static const Plan& plan_of_pairs() {
    static const Plan kPlan = [] {
      constexpr int kMicros = kStages + 1;
      Plan plan;
      for (int stage = 0; stage < kStages; ++stage) {
        const int ahead = kStages - stage;  // forwards before the first pair
        RankPlan& row = plan.emplace_back();
        for (int micro = 0; micro < kMicros + ahead; ++micro) {
          if (micro < kMicros) row.push_back({ActionKind::F, stage, Action::kAll, micro});
          if (micro < ahead) continue;
          row.back().overlaps_next = micro < kMicros;
          row.push_back({ActionKind::B, stage, Action::kAll, micro - ahead});
        }
      }
      return add_communication(std::move(plan), Pairs::Together);
    }();
    return kPlan;
  }

  static Plan make_plan(LayerBackward backward) {
    Plan plan;
    for (int stage = 0; stage < kStages; ++stage) {
      const auto action = [&](ActionKind kind) { return Action{kind, stage, Action::kAll, 0}; };
      if (backward == LayerBackward::Split)
        plan.push_back({action(ActionKind::F), action(ActionKind::I), action(ActionKind::W)});
      else
        plan.push_back({action(ActionKind::F), action(ActionKind::B)});
    }
    if (backward == LayerBackward::None) plan = drop_backward(std::move(plan), kStages - 1);
    return add_communication(std::move(plan));
  }

  RunSpec run_;
  MeshSizes sizes_;
  CutModel model_;
  LayerBackward backward_;
};

template <class Number>
PerLayers line_through(Number one, Number two) {
  const auto a = static_cast<double>(one), b = static_cast<double>(two);
  return {2 * a - b, b - a};
}

StageNeeds needs_between(const ActivationMemory& one, const ActivationMemory& two) {
  return {line_through(one.stages[0].keep, two.stages[0].keep),
          line_through(one.stages[0].held, two.stages[0].held), line_through(one.flow, two.flow),
          line_through(one.scratch, two.scratch), line_through(one.pair_scratch, two.pair_scratch)};
}

BlockNeeds walked_needs(const RunSpec& run, LayerBackward backward) {
  const ThreeStages one(run, false, backward), two(run, true, backward);
  BlockNeeds needs;
  StageNeeds* of_stage[] = {&needs.first, &needs.middle, &needs.last};
  for (int stage = 0; stage < kStages; ++stage) {
    const ActivationMemory memory = one.walk(stage);
    *of_stage[stage] = needs_between(memory, two.walk(stage));
    if (stage == 1) needs.message = static_cast<double>(memory.message);
  }
  return needs;
}

// The needs of the last stage with all parts of the head.
StageNeeds walked_last(const RunSpec& run, LayerBackward backward) {
  constexpr int kLast = kStages - 1;
  return needs_between(ThreeStages(run, false, backward).walk(kLast),
                       ThreeStages(run, true, backward).walk(kLast));
}

BlockWeights counted_weights(const RunSpec& run) {
  const ThreeStages one(run, false), two(run, true);
  const auto of_stage = [&](size_t stage) {
    const CutModel::Elements a = one.model().elements_of(stage), b = two.model().elements_of(stage);
    return StageWeights{line_through(a.weights, b.weights), line_through(a.experts, b.experts),
                        line_through(a.trained, b.trained), line_through(a.quantized, b.quantized),
                        line_through(a.quantized_bytes, b.quantized_bytes)};
  };
  BlockWeights weights{of_stage(0), of_stage(1), of_stage(2), 0, run.mesh.pipeline_vocab_parts};
  for (const ParamSpec& spec : one.model().model.params.specs())
    if (spec.tied_to) {
      weights.tied += static_cast<double>(spec.shard.local.elements());
      weights.tied_apart |= one.model().model.params[*spec.tied_to].added_in_parts;
    }
  return weights;
}

// ---- Other numbers of stages ----

// The needs of a stage that has both ends of the model.
PerLayers both_ends(const PerLayers& first, const PerLayers& middle, const PerLayers& last) {
  return {first.none + last.none - middle.none, middle.layer};
}

PerLayers larger(const PerLayers& a, const PerLayers& b) {
  return {std::max(a.none, b.none), std::max(a.layer, b.layer)};
}

// Adds `more` of the `parts` parts of the head to a stage.
PerLayers with_heads(const PerLayers& stage, const PerLayers& middle, const PerLayers& last, int parts,
                     int more) {
  return {stage.none + more * (last.none - middle.none) / parts, stage.layer};
}

// The stage with the same ends of the model, and the number of parts of the head to add to it.
template <class Blocks>
auto with_as_many_ends(const Blocks& blocks, int index, int stages, int heads) {
  const bool is_last = index + 1 == stages;
  return std::pair{index == 0 ? blocks.first
                   : is_last  ? blocks.last
                              : blocks.middle,
                   heads - (is_last ? blocks.parts : 0)};
}

}  // namespace

StageNeeds BlockNeeds::stage(int index, int stages, int heads) const {
  if (stages == 1)
    return {both_ends(first.keep, middle.keep, last.keep), both_ends(first.held, middle.held, last.held),
            larger(first.flow, last.flow), larger(first.scratch, last.scratch),
            larger(first.beside, last.beside)};
  auto [needs, more] = with_as_many_ends(*this, index, stages, heads);
  if (more == 0) return needs;
  const StageNeeds bare = needs;
  for (const auto part : {&StageNeeds::keep, &StageNeeds::held})
    needs.*part = with_heads(bare.*part, middle.*part, last.*part, parts, more);
  for (const auto part : {&StageNeeds::flow, &StageNeeds::scratch, &StageNeeds::beside})
    needs.*part = heads > 0 ? larger(bare.*part, last.*part) : middle.*part;
  return needs;
}

StageWeights BlockWeights::stage(int index, int stages, int heads) const {
  if (stages == 1) {
    StageWeights all{both_ends(first.weights, middle.weights, last.weights),
                     both_ends(first.experts, middle.experts, last.experts),
                     both_ends(first.trained, middle.trained, last.trained),
                     both_ends(first.quantized, middle.quantized, last.quantized),
                     both_ends(first.quantized_bytes, middle.quantized_bytes, last.quantized_bytes)};
    all.weights.none -= tied;  // one weight, used twice
    return all;
  }
  auto [stage, more] = with_as_many_ends(*this, index, stages, heads);
  if (more != 0) stage.weights = with_heads(stage.weights, middle.weights, last.weights, parts, more);
  return stage;
}

const LayerKinds& BlocksOfModel::kinds(const RunSpec& run) {
  return kinds_.of({}, [&] { return layer_kinds(run.model); });
}

// The run with all layers of one kind. Layers without experts do not depend on the ranks that share experts.
RunSpec BlocksOfModel::with_one_kind(RunSpec run, size_t kind) {
  run.model = kinds(run).kinds.at(kind).model;
  if (!run.model.num_experts) run.mesh.expert_model_parallel_size = run.mesh.expert_tensor_parallel_size = 1;
  return run;
}

BlocksOfModel::MeshKey BlocksOfModel::mesh_key(const RunSpec& run, size_t kind) {
  const MeshConfig& mesh = run.mesh;
  const bool experts = kinds(run).kinds.at(kind).model.num_experts.has_value();
  return {mesh.tensor_model_parallel_size,
          mesh.context_parallel_size,
          experts ? mesh.expert_model_parallel_size : 1,
          experts ? mesh.expert_tensor_parallel_size : 1,
          mesh.pipeline_vocab_parts,
          kind};
}

const BlockWeights& BlocksOfModel::weights(const RunSpec& run, size_t kind) {
  return weights_.of(mesh_key(run, kind), [&] { return counted_weights(with_one_kind(run, kind)); });
}

const BlockNeeds& BlocksOfModel::needs(const RunSpec& run, LayerBackward backward, size_t kind) {
  const MeshConfig& mesh = run.mesh;
  const NeedsKey key{mesh_key(run, kind),    mesh.context_exchange(),    run.micro_batch_size,
                     mesh.sequence_parallel, mesh.recompute_granularity, backward};
  return needs_.of(key, [&] {
    if (mesh.pipeline_vocab_parts == 1) return walked_needs(with_one_kind(run, kind), backward);
    RunSpec whole = run;
    whole.mesh.pipeline_vocab_parts = 1;
    BlockNeeds needs_of_parts = needs(whole, backward, kind);
    needs_of_parts.last = walked_last(with_one_kind(run, kind), backward);
    needs_of_parts.parts = mesh.pipeline_vocab_parts;
    return needs_of_parts;
  });
}

}  // namespace trifold
