#include "plan/forecast/block_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "config/fields/layer_kinds.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "plan/forecast/device_prices.h"

namespace trifold {

namespace {

// The run with the context ranks of another program, which pass keys around a ring.
RunSpec assumed_context(RunSpec run, const Software& software) {
  if (software.context == 1) return run;
  run.mesh.context_parallel_size = static_cast<int>(software.context);
  run.mesh.cp_comm_type = ContextExchange::Ring;
  return run;
}

// A model of one layer on one rank of the run's mesh.
struct OneLayer {
  OneLayer(const RunSpec& run, FusedOps fused, double load)
      : mesh(mesh_sizes(run.mesh), {}), model(make_model(run.model, mesh, run.seed, run.mesh)) {
    model.give_layers_backward();
    Batch batch = batch_without_memory(run.micro_batch_size, run.model.seq_length, model.later_labels);
    cut_rows(batch, rows_here(model.row_cut, run.model.seq_length, mesh.sizes(), {}));
    work = walk_work(model, mesh, batch, run.layer_type(), counting_ops(fused), load);
  }

  size_t first_layer() const { return static_cast<size_t>(model.layers().front()); }
  double tied(bool trained_only) const {
    double elements = 0;
    for (const ParamSpec& spec : model.params.specs())
      if (spec.tied_to && !(trained_only && spec.frozen))
        elements += static_cast<double>(spec.shard.local.elements());
    return elements;
  }
  void count_weights(size_t block, double element_bytes, BlockCost& cost) const {
    for (const ParamSpec& spec : model.params.specs()) {
      if (spec.block != static_cast<int>(block)) continue;
      const auto in = [&](HeldWeights& weights) -> double& {
        return spec.shard.data_axes() == kExpertDataAxes ? weights.experts : weights.dense;
      };
      in(cost.weights) += static_cast<double>(spec.stored_length()) / (spec.quantized ? element_bytes : 1);
      if (!spec.frozen) in(cost.trained) += static_cast<double>(spec.shard.local.elements());
    }
  }

  Mesh mesh;
  Model model;
  WalkedModel work;
};

// Layers without experts do not depend on the ranks that share experts.
RunSpec with_one_layer(RunSpec run, const ModelConfig& kind, bool on_device) {
  run.model = kind;
  run.model.num_layers = 1;
  if (!kind.num_experts) run.mesh.expert_model_parallel_size = run.mesh.expert_tensor_parallel_size = 1;
  if (on_device) run.mesh.device = ComputeDevice::Cuda;
  return run;
}

// ---- How other programs do the same ----

// Their losses leave the gradients of logits, and the products with them, to backward; here the forward of an output
// loss computes both (tensor_parallel/vocab.h).
void move_loss_gradients(WalkedBlock& head) {
  std::vector<Work> forward;
  std::vector<std::vector<Work>*> next;  // lists for the products after a loss: of the input, of the weight
  for (const Work& work : head.forward) {
    if (is_named(work, "cross_entropy")) next = {&head.weight, &head.input};
    if (work.kind != Work::Kind::Product || next.empty()) {
      forward.push_back(work);
      continue;
    }
    next.back()->push_back(work);
    head.backward.push_back(work);
    next.pop_back();
  }
  head.forward = std::move(forward);
}

// ---- Costs of a block ----

struct Parts {
  ListSeconds forward, input, weight;
};

// If backward is one call, `input` is its time without the products of weight gradients.
Parts parts_of(const WalkedBlock& block, const WorkPrices& prices, bool split) {
  Parts parts{seconds_of(block.forward, prices), {}, seconds_of(block.weight, prices)};
  parts.input = seconds_of(split ? block.input : block.backward, prices);
  if (split) return parts;
  double products = 0;
  for (const Work& work : block.weight)
    if (work.kind == Work::Kind::Product) products += work.times * prices.seconds(work);
  const ListSeconds whole = parts.input;
  parts.weight.compute = std::min(products, whole.compute);
  parts.weight.context = parts.weight.context_hidden = 0;
  parts.weight.tensor = std::min(parts.weight.rows, whole.rows);
  parts.input.compute = whole.compute - parts.weight.compute;
  parts.input.tensor = whole.tensor - parts.weight.tensor;
  parts.input.rows = whole.rows - parts.weight.rows;
  return parts;
}

BlockCost cost_of(const Parts& parts) {
  const auto of = [&](double ListSeconds::*part) {
    return PartSeconds{parts.forward.*part, parts.input.*part, parts.weight.*part};
  };
  return {of(&ListSeconds::compute), of(&ListSeconds::tensor), of(&ListSeconds::context),
          of(&ListSeconds::context_hidden), of(&ListSeconds::rows)};
}

HeldWeights operator+(const HeldWeights& a, const HeldWeights& b) {
  return {a.dense + b.dense, a.experts + b.experts};
}

HeldWeights operator*(double factor, const HeldWeights& weights) {
  return {factor * weights.dense, factor * weights.experts};
}

PartSeconds operator+(const PartSeconds& a, const PartSeconds& b) {
  return {a.forward + b.forward, a.input + b.input, a.weight + b.weight};
}

PartSeconds operator*(double factor, const PartSeconds& part) {
  return {factor * part.forward, factor * part.input, factor * part.weight};
}

BlockCost operator+(const BlockCost& a, const BlockCost& b) {
  return {a.compute + b.compute, a.tensor + b.tensor,
          a.context + b.context, a.context_hidden + b.context_hidden,
          a.rows + b.rows,       a.weights + b.weights,
          a.trained + b.trained};
}

// The walks of a run's blocks, to be priced.
class Pricing {
 public:
  Pricing(const Hardware& hardware, const Software& software, const RunSpec& run, double load)
      : hardware_(hardware),
        software_(software),
        run_(assumed_context(run, software)),
        load_(load),
        prices_(device_prices(hardware_, software_, run_)) {
    for (const LayerKind& kind : layer_kinds(run_.model).kinds) kinds_.push_back(walked(kind.model));
  }

  // If other programs split a backward, its second half has only the products of weights.
  BlockCosts costs(bool split_here) const {
    const bool split = split_here && !software_.describes_memory();
    BlockCosts costs;
    const size_t last = last_layer_kind(layer_kinds(run_.model));
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      const BlockCosts of_kind = costs_of(kinds_[kind], split);
      costs.layers.push_back(of_kind.layers.front());
      if (kind != last) continue;
      costs.embedding = of_kind.embedding;
      costs.head = of_kind.head;
      costs.tied = of_kind.tied;
      costs.tied_trained = of_kind.tied_trained;
    }
    return costs;
  }

 private:
  // All blocks of a model whose layers are alike, and the same blocks without recomputation if another program needs
  // them.
  struct Blocks {
    OneLayer all;
    std::optional<OneLayer> without_recomputation;
  };

  Blocks walked(const ModelConfig& kind) const {
    RunSpec run = with_one_layer(run_, kind, is_device(hardware_));
    const FusedOps fused = fused_ops(hardware_, software_, run_);
    Blocks blocks{OneLayer(run, fused, load_), {}};
    if (recomputes_some() || recomputes_scores()) {
      run.mesh.recompute_granularity = RecomputeGranularity::None;
      blocks.without_recomputation.emplace(run, fused, load_);
    }
    return blocks;
  }

  RecomputeGranularity granularity() const { return run_.mesh.recompute_granularity; }
  bool recomputes_some() const {
    return granularity() == RecomputeGranularity::Full && software_.recompute_fraction < 1;
  }
  bool recomputes_scores() const {
    return granularity() == RecomputeGranularity::Selective &&
           software_.attention == AttentionKernel::Unfused;
  }

  // The costs of a model whose layers are all of one kind. A head may have modules whose layers are like the last one.
  BlockCosts costs_of(const Blocks& blocks, bool split) const {
    const OneLayer& walked = blocks.all;
    BlockCosts costs;
    costs.tied = walked.tied(false);
    costs.tied_trained = walked.tied(true);
    BlockCost layer;  // if layers differ, as in a model from a file, the last one
    for (size_t block = 0; block < walked.model.blocks.size(); ++block) {
      WalkedBlock work = walked.work.of_block(block);
      const BlockKind kind = walked.model.blocks[block].kind;
      if (kind == BlockKind::Head && software_.describes_memory()) move_loss_gradients(work);
      BlockCost cost = cost_of(parts_of(work, *prices_, split));
      walked.count_weights(block, static_cast<double>(size_of(run_.dtype)), cost);
      switch (kind) {
        case BlockKind::Embedding:
          costs.embedding = cost;
          break;
        case BlockKind::Layer:
          layer = layer_of(blocks, work, cost, split);
          break;
        case BlockKind::Head:
          costs.head = costs.head + cost;
          break;
      }
    }
    costs.layers.push_back(layer);
    return costs;
  }

  // Adds the cost of recomputation, which may apply to some of the layers and differ in another program.
  BlockCost layer_of(const Blocks& blocks, const WalkedBlock& block, BlockCost cost, bool split) const {
    // A forward that backward repeats has no other half to hide its exchanges.
    if (granularity() == RecomputeGranularity::Full)
      cost.rows.input -= seconds_of(block.forward, *prices_).rows;
    hide_behind_weights(cost);
    if (several_rounds(block)) cost.rows = {};
    cost.rows = (1 - hardware_.contention) * cost.rows;
    if (!blocks.without_recomputation) return cost;
    const WalkedBlock& walked =
        blocks.without_recomputation->work.of_block(blocks.without_recomputation->first_layer());
    BlockCost plain = cost_of(parts_of(walked, *prices_, split));
    hide_behind_weights(plain);
    plain.rows = cost.rows;
    plain.weights = cost.weights;
    plain.trained = cost.trained;
    if (recomputes_scores()) {
      for (const Work& work : walked.forward)
        if (work.kind == Work::Kind::Attention) plain.compute.input += work.times * prices_->seconds(work);
      return plain;
    }
    const double fraction = software_.recompute_fraction;
    BlockCost mixed = cost.times(fraction) + plain.times(1 - fraction);
    mixed.weights = cost.weights;
    mixed.trained = cost.trained;
    return mixed;
  }

  // Removes the share of the sums in backward that a program overlaps with the gradients of weights.
  void hide_behind_weights(BlockCost& cost) const {
    const double sums = cost.tensor.input;
    const double behind = std::min(software_.backward_overlap * sums, cost.compute.weight);
    cost.tensor.input -= (1 - hardware_.contention) * behind;
  }

  // Whether rows are exchanged in several rounds, which the other half of a pair cannot hide.
  static bool several_rounds(const WalkedBlock& block) {
    const auto exchanges = [](std::span<const Work> list) {
      return std::count_if(list.begin(), list.end(), [](const Work& work) {
        return work.kind == Work::Kind::Collective && is_named(work, "all_to_all") &&
               work.group == kExpertShareAxes.bits();
      });
    };
    return exchanges(block.weight) > 1;
  }

  const Hardware& hardware_;
  const Software& software_;
  RunSpec run_;
  double load_;
  std::unique_ptr<WorkPrices> prices_;
  std::vector<Blocks> kinds_;  // [layer kind]
};

}  // namespace

PartSeconds BlockCost::all() const { return compute + tensor + context; }

BlockCost BlockCost::times(double factor) const {
  return {factor * compute, factor * tensor,  factor * context, factor * context_hidden,
          factor * rows,    factor * weights, factor * trained};
}

BlockCost BlockCost::forward_only() const {
  BlockCost cost = *this;
  for (PartSeconds* part : {&cost.compute, &cost.tensor, &cost.context, &cost.context_hidden, &cost.rows})
    part->input = part->weight = 0;
  return cost;
}

const BlockCosts& CostsOfModel::of(const RunSpec& run, bool split) {
  const MeshConfig& mesh = run.mesh;
  const Key key{mesh.tensor_model_parallel_size,  mesh.context_parallel_size, mesh.expert_model_parallel_size,
                mesh.expert_tensor_parallel_size, mesh.pipeline_vocab_parts,  mesh.context_exchange(),
                mesh.moe_token_dispatcher_type,   run.micro_batch_size,       mesh.sequence_parallel,
                mesh.recompute_granularity};
  const BothCosts& costs = costs_.of(key, [&] {
    Pricing pricing(hardware_, software_, run, load_);
    return BothCosts{pricing.costs(false), pricing.costs(true)};
  });
  return split ? costs.split : costs.whole;
}

}  // namespace trifold
