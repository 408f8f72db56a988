#include "models/block_flops.h"

#include <algorithm>

#include "config/subjects/model_family.h"
#include "nn/context/gathered_keys.h"

namespace trifold {

namespace {

// Weights of the products around attention.
double attention_weights(const ModelConfig& config) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_attention_heads);
  if (!config.multi_latent_attention) {
    const double query = heads * static_cast<double>(head_width(config));
    const auto key_value = static_cast<double>(2 * key_heads(config) * head_width(config));
    return c * (2 * query + key_value);
  }
  const auto rank = static_cast<double>(config.kv_lora_rank);
  const double queries = heads * static_cast<double>(key_width(config));
  const double of_queries =
      config.q_lora_rank ? static_cast<double>(*config.q_lora_rank) * (c + queries) : c * queries;
  return of_queries + c * (rank + static_cast<double>(config.qk_pos_emb_head_dim)) +
         rank * heads * static_cast<double>(config.qk_head_dim + config.v_head_dim) +
         heads * static_cast<double>(config.v_head_dim) * c;
}

// Numbers of a row that enter the region of attention, of those of the residual stream; only latent vectors are fewer.
double entering_share(const ModelConfig& config, bool with_shared_key) {
  if (!config.multi_latent_attention) return 1;
  const int64_t numbers = config.q_lora_rank.value_or(config.hidden_size) + config.kv_lora_rank +
                          (with_shared_key ? config.qk_pos_emb_head_dim : 0);
  return static_cast<double>(numbers) / static_cast<double>(config.hidden_size);
}

// Whether a layer that is repeated for backward leaves out its tiled network, of which it keeps the input alone, and
// whose output only a norm of the sum would read.
bool repeats_without_network(const ModelConfig& config, const MeshConfig& layout) {
  return layout.recompute_granularity == RecomputeGranularity::Full && layout.tiled_mlp > 1 &&
         !family_of_model(config).normalizes_sums;
}

}  // namespace

BlockFlops flops_of_layer(const ModelConfig& config, const MeshConfig& layout) {
  const auto t = static_cast<double>(config.seq_length);
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(config.num_experts ? expert_width(config) : inner_width(config));
  const auto networks = static_cast<double>(config.num_experts ? config.moe_router_topk : 1);  // of a token
  const auto shared = static_cast<double>(config.moe_shared_expert_intermediate_size.value_or(0));
  // Logits of a token: of the router, and the gate of the shared network.
  const auto router =
      static_cast<double>(config.num_experts.value_or(0) + (config.moe_shared_expert_gate ? 1 : 0));
  const double mlp = config.swiglu ? 3 : 2;
  const double seen = family_of_model(config).causal ? 0.5 : 1;
  const double projections =
      2 * t * (attention_weights(config) + mlp * c * (networks * f + shared) + c * router);
  // Queries with keys, probabilities with values.
  const double attention =
      seen * 2 * t * t *
      static_cast<double>(config.num_attention_heads * (key_width(config) + value_width(config)));
  BlockFlops flops{projections + attention, projections + 2 * attention, projections};
  // Selective recomputation repeats norms and activations, no products.
  if (layout.recompute_granularity == RecomputeGranularity::Full) flops.input += flops.forward;
  if (layout.tiled_mlp == 1) return flops;
  // Both parts of a tiled network's backward need the first product again, and the gradient of its result.
  const double second = 2 * t * c * f;
  const double first = (mlp - 1) * second;
  flops.input += first;
  flops.shared = first + second;
  flops.weight += flops.shared;
  if (repeats_without_network(config, layout)) flops.input -= first + second;
  return flops;
}

double flops_of_vocabulary_loss(const ModelConfig& config, int64_t padded_vocab) {
  return 3 * 2 * static_cast<double>(config.seq_length) * static_cast<double>(config.hidden_size) *
         static_cast<double>(padded_vocab);
}

// Each linear pair has one sum in forward (of its output) and one in backward (of the gradient of its input).
// Sequence parallelism splits each into an all-gather and a reduce-scatter, which move as much, and gathers the inputs
// of the two column-parallel layers once more for their weight gradients (half a sum each). Experts are not a pair of
// tensor-parallel linear layers. Latent attention is entered by its latent vectors, and by keys that have no weights
// inside.
TensorSums sums_of_layer(const ModelConfig& config, const MeshConfig& layout) {
  const double pairs = config.num_experts && !config.moe_shared_expert_intermediate_size ? 1 : 2;
  const double fewer = 1 - entering_share(config, true);
  TensorSums sums{pairs, pairs - fewer, 0.0};
  if (layout.sequence_parallel)
    sums = {pairs - fewer / 2, pairs - fewer / 2, (pairs - 1 + entering_share(config, false)) / 2};
  if (layout.recompute_granularity == RecomputeGranularity::Full) sums.input += sums.forward;
  if (layout.tiled_mlp == 1) return sums;
  if (layout.sequence_parallel) {  // both parts gather the input and the gradient of the output
    sums.input += 1.0 / 2;
    sums.weight += 1.0 / 2;
    sums.shared = 1;
  }
  if (repeats_without_network(config, layout)) sums.input -= 1;
  return sums;
}

int attention_threads(const MeshConfig& layout) {
  return layout.device == ComputeDevice::Cuda ? 1 : layout.threads_per_rank.value_or(1);
}

int gathered_groups(const ModelConfig& config, const MeshConfig& layout) {
  const int64_t tensor = layout.tensor_model_parallel_size;
  const int64_t keys = std::max(tensor, key_heads(config)) / tensor;
  return static_cast<int>(GatheredKeys::groups(keys, attention_threads(layout)));
}

// A group of heads is gathered behind attention of the one before, and a step of a ring moves the keys of the next.
Overlap context_overlap(const ModelConfig& config, const MeshConfig& layout) {
  const auto all_but_one_of = [](double steps) { return (steps - 1) / steps; };
  switch (layout.context_exchange()) {
    case ContextExchange::AllToAll:
      return {};
    case ContextExchange::AllGather: {
      const double hidden = all_but_one_of(gathered_groups(config, layout));
      return {hidden, hidden};
    }
    case ContextExchange::Ring:
      return {1, all_but_one_of(layout.context_parallel_size)};
  }
  return {};
}

namespace {

// Counts of choices are of whole sequences or micro-batches; those of the last global batch are known. With a capacity, all
// ranks decide which choices of a sequence are dropped.
RouterNumbers routers_of_layer(const ModelConfig& config, const MeshConfig& layout) {
  RouterNumbers numbers;
  if (!config.num_experts || layout.context_parallel_size == 1) return numbers;
  numbers.forward = 1;
  numbers.input = layout.recompute_granularity == RecomputeGranularity::Full ? 1 : 0;
  if (config.moe_expert_capacity_factor) {
    numbers.choices = static_cast<double>(config.moe_router_topk);
    numbers.calls = 2;
  }
  const RouterBalance balance = config.moe_router_load_balancing_type;
  if (balance == RouterBalance::GlobalAuxLoss) return numbers;
  (balance == RouterBalance::AuxLoss ? numbers.micro_counts : numbers.sample_counts) =
      static_cast<double>(*config.num_experts);
  ++numbers.calls;
  return numbers;
}

}  // namespace

// Keys and values are gathered in F and again in I, which sums their gradients (nn/context/gathered_keys.h), or travel
// around a ring, with their gradients in I, which moves as much (nn/context/key_ring.h); or projections and outputs are
// exchanged in F, and their gradients in I (nn/context/exchanged_heads.h).
ContextNumbers context_of_layer(const ModelConfig& config, const MeshConfig& layout) {
  const int64_t tensor = layout.tensor_model_parallel_size;
  const int64_t heads = config.num_attention_heads / tensor;
  const int64_t held_keys = std::max(tensor, key_heads(config)) / tensor;
  const auto queries = static_cast<double>(heads * head_width(config));
  const auto keys = static_cast<double>(2 * held_keys * head_width(config));
  ContextNumbers numbers;
  switch (layout.context_exchange()) {
    case ContextExchange::AllToAll: {  // copies of key heads that are fewer than ranks
      const double moved =
          2 * queries / layout.context_parallel_size +
          keys / static_cast<double>(std::min<int64_t>(held_keys, layout.context_parallel_size));
      numbers = {moved, moved, 0, 2, 2};
      break;
    }
    case ContextExchange::AllGather:
    case ContextExchange::Ring: {
      const int calls =
          layout.context_exchange() == ContextExchange::Ring ? 1 : gathered_groups(config, layout);
      numbers = {keys, keys, keys, calls, 2 * calls};
      break;
    }
  }
  numbers.hidden = context_overlap(config, layout);
  numbers.routers = routers_of_layer(config, layout);
  if (layout.recompute_granularity == RecomputeGranularity::Full) {
    numbers.input += numbers.forward;
    numbers.input_calls += numbers.forward_calls;
  }
  return numbers;
}

// The rows of a token and their gates go to the experts in F and come back, as do their gradients in I. In W the
// rows go once more. Numbers of rows are collectives too (nn/experts.h).
ExpertNumbers experts_of_layer(const ModelConfig& config, const MeshConfig& layout) {
  if (!config.num_experts) return {};
  const auto choices = static_cast<double>(config.moe_router_topk);
  const auto width = static_cast<double>(config.hidden_size);
  const double product = 2 * static_cast<double>(config.seq_length) * choices * width *
                         static_cast<double>(expert_width(config));
  ExpertNumbers numbers;
  if (layout.expert_ranks() > 1)
    numbers = {choices, width, 1, 1, 1, 1, 1, choices, choices, (config.swiglu ? 2 : 1) * product,
               product, 4,     3, 1};
  numbers.tensor_forward = static_cast<double>(*config.num_experts);
  numbers.tensor_input = choices;
  if (layout.recompute_granularity == RecomputeGranularity::Full) {
    numbers.input_out += numbers.forward_out;
    numbers.input_back += numbers.forward_back;
    numbers.input_gates += numbers.forward_gates;
    numbers.input_calls += numbers.forward_calls;
    numbers.tensor_input += numbers.tensor_forward;
  }
  return numbers;
}

}  // namespace trifold
