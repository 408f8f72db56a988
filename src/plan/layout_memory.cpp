#include "plan/layout_memory.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "config/fields/layer_kinds.h"
#include "config/fields/pipeline_choice.h"
#include "layout/device_workspace.h"
#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "models/stage_cut.h"
#include "plan/program_needs.h"
#include "plan/step_plan.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

namespace {

// ---- One rank ----

// Values of a model's blocks as if all layers were of one kind, for each kind that some stage has (null for the others)
// and for the kind of the last layer, whose stages count for all that does not depend on the kind: modules after it are
// of its kind.
template <class Blocks>
struct Mixed {
  std::vector<const Blocks*> kinds;
  size_t last = 0;  // the last layer's

  const Blocks& blocks() const { return *kinds[last]; }
};
using MixedNeeds = Mixed<BlockNeeds>;
using MixedWeights = Mixed<BlockWeights>;

// Needs of a micro-batch on a stage: of layers with I and W or, if the schedule has no I, with B; of B where the schedule
// has I too; of layers without a backward, if any.
struct LayerNeeds {
  MixedNeeds kept;
  std::optional<MixedNeeds> whole, forward_only;
};

class MixedLayers {
 public:
  MixedLayers(const StageCounts& counts, const LayerKinds& kinds)
      : counts_(counts), last_(last_layer_kind(kinds)) {}

  // The layers of a stage that are counted.
  enum class Which : uint8_t { All, WithBackward, ForwardOnly };

  int stages() const { return static_cast<int>(counts_.layers.size()); }
  size_t kinds() const { return counts_.layers.front().size(); }
  double count(int stage, size_t kind, Which which = Which::All) const {
    const int all = counts_.layers[at(stage)][kind];
    const int forward_only = counts_.forward_only_of(stage, kind);
    return which == Which::All ? all : which == Which::ForwardOnly ? forward_only : all - forward_only;
  }
  double count(int stage, Which which = Which::All) const {
    double layers = 0;
    for (size_t kind = 0; kind < kinds(); ++kind) layers += count(stage, kind, which);
    return layers;
  }
  // Whether some blocks have no backward; the embedding is then one of them.
  bool has_forward_only() const { return !counts_.forward_only.empty(); }
  // Whether a stage has a backward. Stages without one come first.
  bool has_backward(int stage) const {
    return !has_forward_only() || count(stage, Which::WithBackward) > 0 || stage + 1 == stages() ||
           (stage > 0 && has_backward(stage - 1));
  }
  int heads_of(int stage, int parts) const {
    if (!counts_.heads.empty()) return counts_.heads[at(stage)];
    return stage + 1 == stages() ? parts : 0;
  }

  // `value_of(kind)` returns a Blocks that outlives the result.
  template <class Blocks, class ValueOf>
  Mixed<Blocks> mixed(ValueOf value_of) const {
    Mixed<Blocks> result{{}, last_};
    for (size_t kind = 0; kind < kinds(); ++kind)
      result.kinds.push_back(kind == last_ || has(kind) ? &value_of(kind) : nullptr);
    return result;
  }

 private:
  static size_t at(int stage) { return static_cast<size_t>(stage); }
  bool has(size_t kind) const {
    return std::any_of(counts_.layers.begin(), counts_.layers.end(),
                       [&](const std::vector<int>& stage) { return stage[kind] > 0; });
  }

  const StageCounts& counts_;
  size_t last_;
};

// The memory of one rank of a layout.
class RankNeeds {
 public:
  RankNeeds(const RunSpec& run, const MixedLayers& layers, const std::vector<StageFlight>& flight)
      : run_(run), layers_(layers), flight_(flight), stages_(layers.stages()) {
    for (size_t i = flight_.size(); i-- > 0;)
      if (!has_backward(flight_[i].stage)) flight_[i] = {flight_[i].stage, slots_without_backward(i), 0};
  }

  double activations(const LayerNeeds& needs) const {
    double bytes = 0, flow = 0, scratch = 0, beside = 0;
    const double message = needs.kept.blocks().message;
    const auto reuse = [&](const MixedNeeds& of, int stage, Which which) {
      flow = std::max(flow, most(of, &StageNeeds::flow, stage, which));
      scratch = std::max(scratch, most(of, &StageNeeds::scratch, stage, which));
      beside = std::max(beside, most(of, &StageNeeds::beside, stage, which));
    };
    for (const StageFlight& use : flight_) {
      bytes += use.slots * outputs_kept(use.stage) * message;
      if (needs.forward_only &&
          (layers_.count(use.stage, Which::ForwardOnly) > 0 || !has_backward(use.stage)))
        reuse(*needs.forward_only, use.stage, Which::ForwardOnly);
      if (!has_backward(use.stage)) continue;
      bytes += use.slots * sum(needs.kept, &StageNeeds::keep, use.stage, Which::WithBackward) +
               use.pending * sum(needs.kept, &StageNeeds::held, use.stage, Which::WithBackward);
      reuse(needs.kept, use.stage, Which::WithBackward);
      if (needs.whole) reuse(*needs.whole, use.stage, Which::WithBackward);
    }
    return bytes + gradient_arenas(needs.kept.blocks().parts) * flow + scratch + beside +
           messages() * message;
  }

  // The activations of a program that allocates them when it computes them and frees them after their last use.
  double activations_as_used(const BlockNeeds& needs, const std::vector<InFlightEvent>& events) const {
    std::vector<StageNeeds> stages;
    double flow = 0, scratch = 0;
    for (const StageFlight& use : flight_) {
      stages.push_back(needs.stage(use.stage, stages_, layers_.heads_of(use.stage, needs.parts)));
      flow = std::max(flow, stages.back().flow.none);
      scratch = std::max(scratch, stages.back().scratch.none);
    }
    double now = 0, most = 0;
    for (const InFlightEvent& event : events) {
      const auto chunk = static_cast<size_t>(event.chunk);
      const int stage = flight_[chunk].stage;
      if (!has_backward(stage)) continue;
      const double layers = layers_.count(stage, Which::WithBackward);
      const double keep = stages[chunk].keep.of(layers), held = stages[chunk].held.of(layers);
      if (event.kind == ActionKind::F) now += keep;
      if (event.kind == ActionKind::I) now += held;
      most = std::max(most, now);
      if (event.kind == ActionKind::W) now -= keep + held;
      if (event.kind == ActionKind::B) now -= keep;
    }
    return most + 2 * flow + scratch + (stages_ > 1 ? 2 * needs.message : 0);
  }

  // `copy_bytes`: bytes per weight of a second copy.
  double flat(const MixedWeights& weights, const ZeroSharing& zero, double copy_bytes) const {
    const double tied = tied_here(weights.blocks());
    const double elements = total(weights, &StageWeights::weights) - counted_twice(weights.blocks());
    const double of_experts = total(weights, &StageWeights::experts);
    const double slice = (elements - of_experts) / zero.group +
                         of_experts / slices_of(kExpertDataAxes, mesh_sizes(run_.mesh), zero.group);
    const double of_ends = end(weights.blocks()), of_layers = unit(weights);
    const double passing = 2 * of_layers + of_ends;  // units in memory at one time
    const DType dtype = run_.dtype;
    const auto bytes = [](double count, size_t each) { return count * static_cast<double>(each); };
    const double held = zero.stage.parameters ? slice + passing : elements;
    const double apart = run_.micros() > 1 || weights.blocks().tied_apart ? tied : 0;
    double gradients = run_.reduces_each() ? slice + passing : elements + apart;
    if (run_.sum_dtype == DType::BF16) gradients += std::max(of_layers, of_ends) / 2;
    double state = run_.zero.offloads() ? 0 : (zero.stage.optimizer ? slice : elements);
    if (run_.model.adapters.lora_rank) {  // most weights are frozen, evenly over the slices
      const double trained = total(weights, &StageWeights::trained) / total(weights, &StageWeights::weights);
      gradients *= trained;
      state *= trained;
    }
    return copy_bytes * held + held * bytes_per_weight(weights) +
           bytes(gradients, size_of(accumulate_type(dtype))) +
           bytes(state, ShardedOptimizer::least_bytes_per_element(run_.optimizer, dtype));
  }

 private:
  using Which = MixedLayers::Which;

  bool has_backward(int stage) const { return layers_.has_backward(stage); }
  // The slots of a stage without a backward: it keeps its output for the next stage, if that is on this rank.
  int slots_without_backward(size_t index) const {
    const bool is_read_here =
        index + 1 < flight_.size() && flight_[index + 1].stage == flight_[index].stage + 1;
    return is_read_here ? flight_[index + 1].slots : 1;
  }

  // The blocks of a stage alternate between two arenas for their gradients; blocks with odd indices take the second one,
  // which is not needed if none of them has a backward.
  int gradient_arenas(int head_parts) const {
    for (const StageFlight& use : flight_) {
      const int embedding = use.stage == 0 ? 1 : 0;
      const auto forward_only = static_cast<int>(layers_.count(use.stage, Which::ForwardOnly)) +
                                (layers_.has_forward_only() ? embedding : 0);
      const auto blocks =
          static_cast<int>(layers_.count(use.stage)) + embedding + layers_.heads_of(use.stage, head_parts);
      const bool has_odd = blocks - forward_only > 1 || (blocks - forward_only == 1 && forward_only % 2 == 1);
      if (has_backward(use.stage) && has_odd) return 2;
    }
    return 1;
  }

  // The outputs that blocks without a backward leave in a slot. There is one at a time, none of the stage's last block if
  // that is sent; the needs of first stages include an embedding's.
  int outputs_kept(int stage) const {
    const double layers = layers_.count(stage, Which::ForwardOnly);
    if (has_backward(stage)) return stage > 0 && layers > 0 ? 1 : 0;
    return layers + (stage == 0 ? 1 : 0) > 1 || holds(stage + 1) ? 1 : 0;
  }

  // The mean over all weights; quantized ones are taken to be spread evenly over the slices.
  double bytes_per_weight(const MixedWeights& weights) const {
    const auto wide = static_cast<double>(size_of(run_.dtype));
    const double all = total(weights, &StageWeights::weights);
    if (all == 0) return wide;
    return wide + (total(weights, &StageWeights::quantized_bytes) -
                   wide * total(weights, &StageWeights::quantized)) /
                      all;
  }

  // The sum over layers of a stage.
  template <class Blocks, class Stage>
  double sum(const Mixed<Blocks>& of, PerLayers Stage::*part, int stage, Which which = Which::All) const {
    double all = (of_stage(of.blocks(), stage).*part).of(layers_.count(stage, of.last, which));
    for (size_t kind = of.kinds.size(); kind-- > 0;)
      if (const Blocks* blocks = kind == of.last ? nullptr : of.kinds[kind])
        all += layers_.count(stage, kind, which) * (of_stage(*blocks, stage).*part).layer;
    return all;
  }

  template <class Blocks>
  auto of_stage(const Blocks& blocks, int stage) const {
    return blocks.stage(stage, stages_, layers_.heads_of(stage, blocks.parts));
  }

  // Memory that layers reuse: the largest need of the kinds of layers that the stage has.
  double most(const MixedNeeds& needs, PerLayers StageNeeds::*part, int stage, Which which) const {
    double bytes = 0;
    for (size_t kind = needs.kinds.size(); kind-- > 0;) {
      const double count = layers_.count(stage, kind, which);
      const bool needed = count > 0 || (kind == needs.last && layers_.count(stage, which) == 0);
      if (needed) bytes = std::max(bytes, (of_stage(*needs.kinds[kind], stage).*part).of(count));
    }
    return bytes;
  }

  double total(const MixedWeights& weights, PerLayers StageWeights::*part) const {
    double elements = 0;
    for (const StageFlight& use : flight_) elements += sum(weights, part, use.stage);
    return elements;
  }

  bool holds(int stage) const {
    return std::any_of(flight_.begin(), flight_.end(),
                       [&](const StageFlight& use) { return use.stage == stage; });
  }

  // Whether tokens are looked up on the ranks with the parts of the head that share their weights.
  bool tokens_at_head(const BlockWeights& blocks) const {
    return blocks.tied > 0 && blocks.parts > 1 && stages_ > 1;
  }

  // Elements that are counted in both the first stage and the head although this rank holds them at most once.
  double counted_twice(const BlockWeights& blocks) const {
    if (stages_ == 1 || !holds(0)) return 0;
    return tokens_at_head(blocks) ? blocks.tied : tied_here(blocks);
  }

  // Elements of the weight that the token embedding shares with parts of the head, as far as both are on this rank.
  double tied_here(const BlockWeights& blocks) const {
    if (!holds(0) && !tokens_at_head(blocks)) return 0;
    double elements = 0;
    for (const StageFlight& use : flight_)
      elements += blocks.tied * layers_.heads_of(use.stage, blocks.parts) / blocks.parts;
    return elements;
  }

  // The input of a micro-batch in flight is a message or, if the previous stage is on this rank too, that stage's kept
  // output. The same holds for the gradient of its output until its last backward. One output or input gradient is
  // being sent at a time, one gradient is being received, and the executor allocates two more messages than its plan
  // needs. A stage without a backward has one input ahead of the one that it reads, and the stage after it sends no
  // gradients.
  double messages() const {
    if (stages_ == 1) return 0;
    double count = 2;
    for (const StageFlight& use : flight_) {
      if (use.stage > 0 && !holds(use.stage - 1)) count += use.slots + (has_backward(use.stage) ? 0 : 1);
      if (use.stage + 1 == stages_) continue;
      if (!has_backward(use.stage)) {
        count += holds(use.stage + 1) ? 0 : 1;
        continue;
      }
      count += std::max(use.pending, 1) + (holds(use.stage + 1) ? use.slots : 0);
    }
    if (!has_backward(flight_.back().stage)) return count;
    const bool first = holds(0), last = holds(stages_ - 1);
    const bool sends_gradients =
        !first && std::any_of(flight_.begin(), flight_.end(), [&](const StageFlight& use) {
          return !holds(use.stage - 1) && has_backward(use.stage - 1);
        });
    return count + (first ? 0 : 1) + (sends_gradients ? 1 : 0) + (last ? 0 : 2);
  }

  // Layers of a stage are one unit until it is large enough: the largest unit of any kind.
  double unit(const MixedWeights& weights) const {
    double largest = 0;
    for (size_t kind = 0; kind < weights.kinds.size(); ++kind) {
      if (weights.kinds[kind] == nullptr) continue;
      double most = 0;
      for (const StageFlight& use : flight_) most = std::max(most, layers_.count(use.stage, kind));
      const double layer = weights.kinds[kind]->middle.weights.layer;
      largest = std::max(largest, layer * std::min(std::ceil(static_cast<double>(unit_elements(run_.zero)) /
                                                             std::max(layer, 1.0)),
                                                   most));
    }
    return largest;
  }

  // The larger end of the model on this rank: the two are never needed at the same time. All tokens that a rank looks
  // up for the first stage are one unit.
  double end(const BlockWeights& blocks) const {
    if (tokens_at_head(blocks))
      return std::max(holds(0) ? blocks.first.weights.none - blocks.tied : 0, tied_here(blocks));
    const bool has_head = std::any_of(flight_.begin(), flight_.end(), [&](const StageFlight& use) {
      return layers_.heads_of(use.stage, blocks.parts) > 0;
    });
    return std::max(holds(0) ? blocks.first.weights.none : 0,
                    has_head ? blocks.last.weights.none / blocks.parts : 0);
  }

  const RunSpec& run_;
  const MixedLayers& layers_;
  std::vector<StageFlight> flight_;
  int stages_;
};

}  // namespace

const ScheduleFlight& LayoutMemory::flight(const RunSpec& run, int stages) {
  const int ranks = run.mesh.pipeline_model_parallel_size;
  const FlightKey key{run.order.schedule.value(), ranks, stages / ranks, run.micros()};
  return flights_.of(key, [&] { return std::apply(schedule_flight, key); });
}

size_t LayoutMemory::workspace(const RunSpec& run) const {
  return software_.describes_memory() ? 0 : device_workspace(run);
}

size_t LayoutMemory::least_bytes(const RunSpec& run, const StageCounts& counts) {
  const MixedLayers layers(counts, blocks_.kinds(run));
  const MixedWeights weights = layers.mixed<BlockWeights>(
      [&](size_t kind) -> const BlockWeights& { return blocks_.weights(run, kind); });
  const ZeroSharing zero = zero_sharing(run);
  double most = 0;
  for (const std::vector<StageFlight>& rank : flight(run, layers.stages()).ranks)
    most = std::max(most, RankNeeds(run, layers, rank).flat(weights, zero, software_.weight_copy_bytes));
  return static_cast<size_t>(most) + workspace(run);
}

std::vector<double> LayoutMemory::activation_bytes(const RunSpec& run, const StageCounts& counts,
                                                   const ScheduleFlight& flight) {
  const MixedLayers layers(counts, blocks_.kinds(run));
  std::vector<double> bytes;
  if (software_.describes_memory()) {
    const BlockNeeds needs = program_needs(software_, run, flight.splits);
    for (size_t rank = 0; rank < flight.ranks.size(); ++rank)
      bytes.push_back(
          RankNeeds(run, layers, flight.ranks[rank]).activations_as_used(needs, flight.events[rank]));
    return bytes;
  }
  const auto needs_of = [&](LayerBackward backward) {
    return layers.mixed<BlockNeeds>(
        [&](size_t kind) -> const BlockNeeds& { return blocks_.needs(run, backward, kind); });
  };
  LayerNeeds needs{needs_of(flight.splits ? LayerBackward::Split : LayerBackward::Whole), {}, {}};
  if (flight.splits && flight.whole) needs.whole = needs_of(LayerBackward::Whole);
  if (layers.has_forward_only()) needs.forward_only = needs_of(LayerBackward::None);
  for (const std::vector<StageFlight>& rank : flight.ranks)
    bytes.push_back(RankNeeds(run, layers, rank).activations(needs));
  return bytes;
}

size_t LayoutMemory::most_bytes(const RunSpec& run, const StageCounts& counts) {
  const MixedLayers layers(counts, blocks_.kinds(run));
  const ScheduleFlight& rows = flight(run, layers.stages());
  const std::vector<double> activations = activation_bytes(run, counts, rows);
  const MixedWeights weights = layers.mixed<BlockWeights>(
      [&](size_t kind) -> const BlockWeights& { return blocks_.weights(run, kind); });
  const ZeroSharing zero = zero_sharing(run);
  double most = 0;
  for (size_t rank = 0; rank < rows.ranks.size(); ++rank) {
    const RankNeeds of_rank(run, layers, rows.ranks[rank]);
    most = std::max(most, activations[rank] + of_rank.flat(weights, zero, software_.weight_copy_bytes));
  }
  return static_cast<size_t>(most) + workspace(run);
}

}  // namespace trifold
