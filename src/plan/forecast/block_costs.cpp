#include "plan/forecast/block_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "config/fields/layer_kinds.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "plan/forecast/kernels.h"
#include "plan/forecast/network.h"

namespace trifold {

namespace {

constexpr double kSeparateKernels = 1.825;  // bytes of elementwise operations in separate kernels
constexpr double kBatchedRate = 0.55;       // rate of batched products of heads, relative to linear layers
constexpr double kBackwardWork = 2.5;  // fused attention's backward computes five products, its forward two

bool is_named(const Work& work, std::string_view begin) {
  return std::string_view(work.name).starts_with(begin);
}

// ---- Prices of a program's operations on a device ----

class DevicePrices final : public WorkPrices {
 public:
  DevicePrices(const Hardware& hardware, const Software& software, const RunSpec& run)
      : hardware_(hardware),
        software_(software),
        sizes_(mesh_sizes(run.mesh)),
        in_8bit_(run.products_in_8bit),
        drops_scores_(run.model.attention_dropout > 0),
        sequence_(static_cast<double>(run.model.seq_length)) {}

  double seconds(const Work& work) const override {
    switch (work.kind) {
      case Work::Kind::Movement:
        return movement(work);
      case Work::Kind::Product:
        return product(work);
      case Work::Kind::Attention:
        return attention(work);
      case Work::Kind::Collective:
        return collective(work);
      case Work::Kind::Wait:
        return 0;
    }
    return 0;
  }

  double exposed(const Work& work) const override {
    if (work.group != AxisSet{Axis::Tp}.bits()) return 1;
    if (work.stream != 0 && is_named(work, "all_gather")) return 0;  // inputs for weight gradients
    return 1 - software_.tensor_overlap;
  }
  double contention() const override { return hardware_.contention; }

 private:
  double pass(double bytes) const {
    return pass_seconds(hardware_, bytes * (software_.fused_elementwise ? 1 : kSeparateKernels));
  }

  double movement(const Work& work) const { return pass(work.bytes); }

  // In 8 bits only the products of linear layers are computed. Rows of experts are padded to tiles.
  double product(const Work& work) const {
    constexpr double kTileRows = 64;
    const auto padded = [&](double rows) { return std::ceil(rows / kTileRows) * kTileRows; };
    ProductShape shape{work.rows, work.columns, work.inner, work.batch};
    if (is_named(work, "expert_product_weight"))
      shape.inner = padded(shape.inner);
    else if (is_named(work, "expert_product"))
      shape.rows = padded(shape.rows);
    const auto element = static_cast<double>(size_of(work.dtype));
    double seconds = in_8bit_ && is_named(work, "affine") ? product_8bit_seconds(hardware_, shape)
                                                          : product_seconds(hardware_, shape, element);
    if (!software_.accumulate_in_product &&
        (is_named(work, "affine_backward_weight") || is_named(work, "expert_product_weight")))
      seconds += pass_seconds(hardware_, 10 * work.batch * work.rows * work.columns);
    return seconds;
  }

  double attention(const Work& work) const {
    if (software_.attention == AttentionKernel::Unfused) return unfused(work);
    const double share =
        software_.attention == AttentionKernel::Flash ? hardware_.flash_share : hardware_.attention_share;
    // The rate of attention over the whole sample applies even if its keys arrive in steps.
    const double steps = sequence_ / work.columns;
    const double forward =
        imbalance(work) *
        fused_attention_seconds(hardware_,
                                {work.batch, work.rows / steps, sequence_, work.inner, work.visible}, share);
    return work.gradient ? kBackwardWork * forward / hardware_.attention_backward : forward;
  }

  // Under a causal mask the last of n contiguous slices of a sample has 2 - 1/n times the average scores.
  double imbalance(const Work& work) const {
    const bool uneven = work.causal && work.visible >= 0.5;  // windows are even
    return uneven && !software_.balanced_context ? 2 - 1.0 / sizes_[Axis::Cp] : 1;
  }

  double unfused(const Work& work) const {
    const auto element = static_cast<double>(size_of(work.dtype));
    const auto batched = [&](double m, double n, double k) {
      return product_seconds(hardware_, {m, n, k, work.batch}, element) / kBatchedRate;
    };
    const double rows = work.rows, columns = work.columns, width = work.inner;
    const double bytes_of_scores = work.batch * rows * columns * element / 2;
    const double dropout = drops_scores_ ? 5 : 0;
    if (!work.gradient)
      return batched(rows, columns, width) + batched(rows, width, columns) +
             pass((4 + dropout) * bytes_of_scores);
    return batched(rows, columns, width) + batched(columns, width, rows) + batched(rows, width, columns) +
           batched(columns, width, rows) + pass((6 + dropout) * bytes_of_scores);
  }

  double collective(const Work& work) const {
    const Ring ring = ring_over(hardware_, sizes_, AxisSet::of_bits(work.group));
    const double others = (ring.ranks - 1) / ring.ranks;
    // One step of a ring is the same share of a gather.
    if (work.hops == 1)
      return gather_seconds(hardware_, software_, ring, work.sent * ring.ranks) / (ring.ranks - 1);
    const double passes = std::max(1.0, std::round(work.hops / (ring.ranks - 1)));
    return passes * gather_seconds(hardware_, software_, ring, work.sent / passes / others);
  }

  const Hardware& hardware_;
  const Software& software_;
  MeshSizes sizes_;
  bool in_8bit_;
  bool drops_scores_;
  double sequence_;
};

// ---- Walks ----

// The run with the context ranks of another program, which pass keys around a ring.
RunSpec assumed_context(RunSpec run, const Software& software) {
  if (software.context == 1) return run;
  run.mesh.context_parallel_size = static_cast<int>(software.context);
  run.mesh.cp_comm_type = ContextExchange::Ring;
  return run;
}

// Devices have fused kernels for operations that a processor composes.
bool is_device(const Hardware& hardware) { return hardware.processors > 1; }

// A model of one layer on one rank of the run's mesh.
struct OneLayer {
  OneLayer(const RunSpec& run, FusedOps fused, double load)
      : mesh(mesh_sizes(run.mesh), {}), model(make_model(run.model, mesh, run.seed, run.mesh)) {
    Batch batch = batch_without_memory(run.micro_batch_size, run.model.seq_length, model.later_labels);
    cut_rows(batch, rows_here(model.row_cut, run.model.seq_length, mesh.sizes(), {}));
    work = walk_work(model, mesh, batch, run.dtype, counting_ops(fused), load);
  }

  size_t first_layer() const { return static_cast<size_t>(model.layers().front()); }
  double tied() const {
    double elements = 0;
    for (const ParamSpec& spec : model.params.specs())
      if (spec.tied_to) elements += static_cast<double>(spec.shard.local.elements());
    return elements;
  }
  HeldWeights weights_of(size_t block) const {
    HeldWeights held;
    for (const ParamSpec& spec : model.params.specs()) {
      if (spec.block != static_cast<int>(block)) continue;
      const auto elements = static_cast<double>(spec.shard.local.elements());
      (spec.shard.data_axes() == kExpertDataAxes ? held.experts : held.dense) += elements;
    }
    return held;
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

PartSeconds operator+(const PartSeconds& a, const PartSeconds& b) {
  return {a.forward + b.forward, a.input + b.input, a.weight + b.weight};
}

PartSeconds operator*(double factor, const PartSeconds& part) {
  return {factor * part.forward, factor * part.input, factor * part.weight};
}

BlockCost operator+(const BlockCost& a, const BlockCost& b) {
  return {a.compute + b.compute, a.tensor + b.tensor,
          a.context + b.context, a.context_hidden + b.context_hidden,
          a.rows + b.rows,       {a.weights.dense + b.weights.dense, a.weights.experts + b.weights.experts}};
}

// The walks of a run's blocks, to be priced.
class Pricing {
 public:
  Pricing(const Hardware& hardware, const Software& software, const RunSpec& run, double load)
      : hardware_(hardware),
        software_(software),
        run_(assumed_context(run, software)),
        load_(load),
        prices_(hardware, software, run_) {
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
    costs.tied = walked.tied();
    BlockCost layer;  // if layers differ, as in a model from a file, the last one
    for (size_t block = 0; block < walked.model.blocks.size(); ++block) {
      WalkedBlock work = walked.work.of_block(block);
      const BlockKind kind = walked.model.blocks[block].kind;
      if (kind == BlockKind::Head && software_.describes_memory()) move_loss_gradients(work);
      BlockCost cost = cost_of(parts_of(work, prices_, split));
      cost.weights = walked.weights_of(block);
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
      cost.rows.input -= seconds_of(block.forward, prices_).rows;
    hide_behind_weights(cost);
    if (several_rounds(block)) cost.rows = {};
    cost.rows = (1 - hardware_.contention) * cost.rows;
    if (!blocks.without_recomputation) return cost;
    const WalkedBlock& walked =
        blocks.without_recomputation->work.of_block(blocks.without_recomputation->first_layer());
    BlockCost plain = cost_of(parts_of(walked, prices_, split));
    hide_behind_weights(plain);
    plain.rows = cost.rows;
    plain.weights = cost.weights;
    if (recomputes_scores()) {
      for (const Work& work : walked.forward)
        if (work.kind == Work::Kind::Attention) plain.compute.input += work.times * prices_.seconds(work);
      return plain;
    }
    const double fraction = software_.recompute_fraction;
    BlockCost mixed = cost.times(fraction) + plain.times(1 - fraction);
    mixed.weights = cost.weights;
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
  DevicePrices prices_;
  std::vector<Blocks> kinds_;  // [layer kind]
};

}  // namespace

FusedOps fused_ops(const Hardware& hardware, const Software& software, const RunSpec& run) {
  if (!is_device(hardware)) return FusedOps::None;
  return run.products_in_8bit || software.describes_memory() ? FusedOps::Rows : FusedOps::All;
}

std::unique_ptr<WorkPrices> device_prices(const Hardware& hardware, const Software& software,
                                          const RunSpec& run) {
  return std::make_unique<DevicePrices>(hardware, software, run);
}

PartSeconds BlockCost::all() const { return compute + tensor + context; }

BlockCost BlockCost::times(double factor) const {
  return {factor * compute,        factor * tensor, factor * context,
          factor * context_hidden, factor * rows,   {factor * weights.dense, factor * weights.experts}};
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
