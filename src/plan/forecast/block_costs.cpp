#include "plan/forecast/block_costs.h"

#include <algorithm>
#include <cmath>

#include "plan/forecast/kernels.h"
#include "plan/forecast/network.h"

namespace trifold {

namespace {

constexpr double kSeparateKernels = 1.825;  // bytes of elementwise operations in separate kernels
constexpr double kBatchedRate = 0.55;       // of batched products of heads, relative to linear layers
constexpr double kBackwardWork = 2.5;       // of fused attention: five products instead of two

PartSeconds operator+(const PartSeconds& a, const PartSeconds& b) {
  return {a.forward + b.forward, a.input + b.input, a.weight + b.weight};
}

class Costs {
 public:
  Costs(const Hardware& hardware, const Software& software, const Workload& work)
      : hardware_(hardware), software_(software), work_(work) {}

  BlockCosts all() const {
    const BlockCost each = layer();
    if (!work_.has_plain_layers()) return {embedding(), each, head(), each};
    const Workload plain = work_.of_plain_layers();
    return {embedding(), each, head(), Costs(hardware_, software_, plain).layer()};
  }

 private:
  // A linear layer of [rows, in] x [in, out] on this rank, and its two gradients; or `batch` of them.
  PartSeconds linear(double in, double out, bool may_be_8bit) const {
    return linear(work_.rows(), in, out, 1, may_be_8bit);
  }
  PartSeconds linear(double rows, double in, double out, double batch, bool may_be_8bit) const {
    const auto seconds = [&](const ProductShape& product) {
      return may_be_8bit && work_.products_in_8bit ? product_8bit_seconds(hardware_, product)
                                                   : product_seconds(hardware_, product, work_.element_bytes);
    };
    PartSeconds parts{seconds({rows, out, in, batch}), seconds({rows, in, out, batch}),
                      seconds({in, out, rows, batch})};
    if (!software_.accumulate_in_product) parts.weight += pass_seconds(hardware_, 10 * batch * in * out);
    return parts;
  }

  // The two products of the MLP, of a tile of rows at a time.
  PartSeconds up() const {
    return of_tiles(work_.hidden, (work_.gated ? 2 : 1) * work_.inner / work_.tensor);
  }
  PartSeconds down() const { return of_tiles(work_.inner / work_.tensor, work_.hidden); }
  PartSeconds of_tiles(double in, double out) const {
    const PartSeconds one = linear(std::ceil(work_.rows() / work_.mlp_tiles), in, out, 1, true);
    return {work_.mlp_tiles * one.forward, work_.mlp_tiles * one.input, work_.mlp_tiles * one.weight};
  }

  // Both products of the MLP, or those of all experts with their router, on the busiest rank; tokens are assumed to
  // spread evenly over its experts and are padded to tiles. Rounds repeat products for backward (nn/experts.h).
  PartSeconds mlp_products() const {
    constexpr double kTileRows = 64;
    const double gates = work_.gated ? 2 : 1;
    if (work_.experts == 0) return up() + down();
    // Each of the tensor ranks has some of the rows; its experts are those of the other grid.
    const double here = work_.experts / work_.expert;  // which rows of all ranks that share experts meet
    const double inner = work_.inner / work_.expert_parts;
    const double own_rows = work_.rows() / work_.tensor;
    const double arriving = work_.expert_load * own_rows * work_.choices * work_.expert_parts;
    const double rows = std::ceil(arriving / here / kTileRows) * kTileRows;
    const PartSeconds first = linear(rows, work_.hidden, gates * inner, here, false);
    const PartSeconds second = linear(rows, inner, work_.hidden, here, false);
    PartSeconds sum = linear(own_rows, work_.hidden, work_.experts, 1, false) + first + second;
    if (work_.expert_rounds > 1) sum = sum + PartSeconds{0, first.forward, first.forward + second.input};
    const double shared = work_.shared / work_.tensor;
    if (shared > 0)
      sum = sum + linear(work_.hidden, gates * shared, true) + linear(shared, work_.hidden, true);
    return sum;
  }

  double pass(double bytes_of_each, double elements) const {
    const double fused = software_.fused_elementwise ? 1 : kSeparateKernels;
    return pass_seconds(hardware_, bytes_of_each * work_.element_bytes / 2 * elements * fused);
  }

  PartSeconds attention() const {
    const double heads = work_.micro_batch * work_.heads / work_.tensor;
    const double own_rows = work_.sequence / work_.context;
    if (software_.attention == AttentionKernel::Unfused) return unfused(heads, own_rows);
    const double share =
        software_.attention == AttentionKernel::Flash ? hardware_.flash_share : hardware_.attention_share;
    const double forward =
        imbalance() *
        fused_attention_seconds(hardware_, {heads, own_rows, work_.sequence, work_.head_width, work_.causal},
                                share);
    return {forward, kBackwardWork * forward / hardware_.attention_backward, 0};
  }

  // Under a causal mask the last of n contiguous slices of a sample has 2 - 1/n times the average scores.
  double imbalance() const { return work_.causal && !software_.balanced_context ? 2 - 1 / work_.context : 1; }

  PartSeconds unfused(double heads, double rows) const {
    const double width = work_.head_width;
    const double columns = work_.sequence;
    const auto batched = [&](double m, double n, double k) {
      return product_seconds(hardware_, {m, n, k, heads}, work_.element_bytes) / kBatchedRate;
    };
    const double scores = heads * rows * columns;
    const double dropout = work_.attention_dropout ? 5 : 0;
    const double forward = batched(rows, columns, width) + batched(rows, width, columns);
    const double backward = batched(rows, columns, width) + batched(columns, width, rows) +
                            batched(rows, width, columns) + batched(columns, width, rows);
    return {forward + pass(4 + dropout, scores), backward + pass(6 + dropout, scores), 0};
  }

  // Latent vectors and shared keys are products with whole weights: of this rank's rows under sequence parallelism, of
  // all otherwise.
  PartSeconds latent_products() const {
    const double own_rows = work_.rows() / (work_.sequence_parallel ? work_.tensor : 1);
    const double heads = work_.heads / work_.tensor;
    const double queries = heads * (work_.plain_width + work_.turned_width);
    PartSeconds sum = linear(work_.query_rank > 0 ? work_.query_rank : work_.hidden, queries, false) +
                      linear(work_.key_value_rank, heads * (work_.plain_width + work_.value_width), false) +
                      linear(heads * work_.value_width, work_.hidden, false) +
                      linear(own_rows, work_.hidden, work_.key_value_rank + work_.turned_width, 1, false);
    if (work_.query_rank > 0) sum = sum + linear(own_rows, work_.hidden, work_.query_rank, 1, false);
    return sum;
  }

  PartSeconds layer_products() const {
    if (work_.latent) return latent_products() + mlp_products();
    const double heads = work_.head_width * work_.heads / work_.tensor;
    const double keys = work_.head_width * std::max(1.0, work_.key_heads / work_.tensor);
    return linear(work_.hidden, heads + 2 * keys, true) + linear(heads, work_.hidden, true) + mlp_products();
  }

  PartSeconds layer_passes() const {
    const double whole = work_.rows() * work_.hidden / (work_.sequence_parallel ? work_.tensor : 1);
    const double inner = work_.rows() * (work_.choices * work_.inner + work_.shared) / work_.tensor;
    // Rows for experts are gathered and added up, and gathered again in backward.
    const double moved = work_.experts > 0 ? work_.rows() / work_.tensor * work_.choices * work_.hidden : 0;
    const bool drops = work_.hidden_dropout;
    // Heads of latent attention are packed, and taken apart in backward.
    const double packed = work_.latent ? work_.rows() * work_.heads / work_.tensor * 3 * work_.head_width : 0;
    const double forward = pass(20 + (drops ? 2 : 0), whole) + pass(work_.gated ? 6 : 4, inner) +
                           pass(8, moved) + pass(4, packed);
    const double backward = pass(20 + (drops ? 6 : 0), whole) + pass(work_.gated ? 10 : 6, inner) +
                            pass(16, moved) + pass(4, packed);
    return {forward, backward, 0};
  }

  // One sum over the tensor axis of an activation [rows, hidden].
  double tensor_sum() const {
    const double bytes = work_.element_bytes * work_.rows() * work_.hidden;
    return 2 * gather_seconds(hardware_, software_, tensor_ring(hardware_, work_), bytes);
  }

  // The exposed part of `sums` seconds of collectives if a share of them overlaps with `hiding` seconds of work.
  double left(double sums, double hiding, double share) const {
    const double behind = std::min(share * sums, hiding);
    return sums - behind + hardware_.contention * behind;
  }

  BlockCost layer() const {
    const PartSeconds core = attention();
    BlockCost cost;
    cost.compute = layer_products() + core + layer_passes();
    const PartSeconds once = cost.compute;
    const double exposed = 1 - software_.tensor_overlap;
    const double sum = tensor_sum();
    const double pairs = work_.experts > 0 && work_.shared == 0 ? 1 : 2;  // of linear layers
    cost.tensor = {pairs * sum * exposed, pairs * sum * exposed, 0};
    // With sequence parallelism the inputs of the two column-parallel layers are gathered again.
    cost.tensor.input = left(cost.tensor.input, once.weight, software_.backward_overlap);
    if (work_.recompute == RecomputeGranularity::Selective)
      cost.compute.input +=
          software_.attention == AttentionKernel::Unfused ? core.forward : layer_passes().forward;
    if (work_.recompute == RecomputeGranularity::Full) {
      cost.compute.input += software_.recompute_fraction * once.forward;
      cost.tensor.input += software_.recompute_fraction * cost.tensor.forward;
    }
    if (work_.mlp_tiles > 1) {
      cost.compute.input += up().forward;
      if (work_.recompute == RecomputeGranularity::Full && !work_.normalizes_sums)
        cost.compute.input -= software_.recompute_fraction * (up().forward + down().forward);
    }
    add_context(cost, core);
    add_exchange(cost);
    return cost;
  }

  // Rows are sent to their experts and back in forward, their gradients in backward, and the rows once more for the
  // weight gradients, to each of the parts of an expert; where they come in rounds, inputs twice and gradients once
  // more. Each of the tensor ranks has some of the rows, of which it sends the same fraction as in a ring all-gather.
  void add_exchange(BlockCost& cost) const {
    if (work_.expert_ranks() < 2) return;
    const double own_rows = work_.rows() / work_.tensor * work_.expert_parts;
    const double bytes = work_.expert_load * work_.element_bytes * own_rows * work_.choices * work_.hidden;
    const Ring ring = expert_ring(hardware_, work_);
    const double back = gather_seconds(hardware_, software_, ring, bytes);
    const double gathered = work_.element_bytes * work_.expert * own_rows * work_.hidden;
    const double out = work_.gathers_tokens ? gather_seconds(hardware_, software_, ring, gathered) : back;
    const double again = work_.expert_rounds > 1 ? 1 : 0;
    const double repeated = work_.recompute == RecomputeGranularity::Full ? software_.recompute_fraction : 0;
    cost.tensor.forward += out + back;
    cost.tensor.input += (1 + repeated) * (out + back) + again * out;
    cost.tensor.weight += (1 + 2 * again) * out;
    if (again > 0) return;
    const double free = 1 - hardware_.contention;
    cost.rows = {free * (out + back), free * (out + back), free * out};
  }

  // Key and value heads are gathered over the context axis or sent around it, and their gradients back; or projections
  // and outputs are exchanged in forward, their gradients in backward, with copies of key heads that are fewer than
  // ranks.
  void add_context(BlockCost& cost, const PartSeconds& core) const {
    if (work_.context < 2) return;
    const double held = std::max(1.0, work_.key_heads / work_.tensor);
    const double moved =
        2 * work_.heads / work_.tensor / work_.context + 2 * held / std::min(held, work_.context);
    const double bytes = work_.element_bytes * work_.micro_batch * work_.sequence * work_.head_width *
                         (work_.exchanges_heads ? moved : 2 * held) / work_.context_pieces;
    const double ring =
        work_.context_pieces * gather_seconds(hardware_, software_, context_ring(hardware_, work_), bytes);
    const double back = (work_.exchanges_heads ? 1 : 2) * ring;
    const auto& [exchange, computation] = work_.context_overlap;
    cost.context.forward = left(ring, computation * core.forward, exchange);
    cost.context.input = left(back, computation * core.input, exchange);
    cost.context_hidden.forward = ring - cost.context.forward;
    cost.context_hidden.input = back - cost.context.input;
    cost.context.forward += routing();
    if (work_.recompute == RecomputeGranularity::Full) {
      cost.context.input += software_.recompute_fraction * cost.context.forward;
      cost.context_hidden.input += software_.recompute_fraction * cost.context_hidden.forward;
    }
  }

  // What routers gather of the other context ranks, in as many collectives of equal parts.
  double routing() const {
    if (work_.router_gathers == 0) return 0;
    return work_.router_gathers * gather_seconds(hardware_, software_, context_ring(hardware_, work_),
                                                 work_.router_bytes / work_.router_gathers);
  }

  BlockCost embedding() const {
    BlockCost cost;
    const double elements = work_.rows() * work_.hidden;
    cost.compute = {pass(4, elements), 0, pass(8, elements)};
    cost.tensor.forward = tensor_sum() * (1 - software_.tensor_overlap);
    return cost;
  }

  BlockCost head() const {
    BlockCost cost;
    const double columns = work_.vocabulary / work_.tensor;
    cost.compute = linear(work_.hidden, columns, false);
    const double bytes = software_.fused_elementwise ? 16 : 24;  // of the loss, on each logit
    cost.compute.forward += pass_seconds(hardware_, bytes * work_.rows() * columns);
    cost.tensor.input =
        left(tensor_sum() * (1 - software_.tensor_overlap), cost.compute.weight, software_.backward_overlap);
    return cost;
  }

  const Hardware& hardware_;
  const Software& software_;
  const Workload& work_;
};

}  // namespace

PartSeconds BlockCost::all() const { return compute + tensor + context; }

BlockCost BlockCost::times(double factor) const {
  const auto scaled = [factor](const PartSeconds& part) {
    return PartSeconds{factor * part.forward, factor * part.input, factor * part.weight};
  };
  return {scaled(compute), scaled(tensor), scaled(context), scaled(context_hidden), scaled(rows)};
}

BlockCosts block_costs(const Hardware& hardware, const Software& software, const Workload& work) {
  return Costs(hardware, software, work).all();
}

}  // namespace trifold
