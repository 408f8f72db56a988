#include "layout/device_workspace.h"

#include <algorithm>

#include "config/fields/layer_kinds.h"
#include "config/subjects/model_family.h"
#include "nn/context/gathered_keys.h"
#include "ops/cuda/attention_blocks.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/workspace.h"

namespace trifold {

namespace {

// The bytes of the largest pair of FP8 factors in the linear layers of a block. Each of a layer's three products has
// two of the factors x [rows, in], w [out, in] and dy [rows, out].
size_t largest_factors(const RunSpec& run) {
  const ModelConfig& model = run.model;
  const int64_t tensor = run.mesh.tensor_model_parallel_size;
  const int64_t rows = run.micro_batch_size * model.seq_length;
  const int64_t queries = model.num_attention_heads * head_width(model) / tensor;
  const int64_t keys = std::max(tensor, key_heads(model)) * head_width(model) / tensor;
  const int64_t inner = inner_width(model) / tensor;
  struct Linear {
    int64_t out, in;
  };
  const Linear layers[] = {{queries + 2 * keys, model.hidden_size},
                           {model.hidden_size, queries},
                           {has_gate(model) ? 2 * inner : inner, model.hidden_size},
                           {model.hidden_size, inner}};
  size_t most = 0;
  for (const auto& [out, in] : layers) {
    if (run.narrow_factors) {
      const auto pair = [](int64_t left, int64_t right, int64_t depth) {
        return cuda::fp8_block_factor_workspace(left, depth) + cuda::fp8_block_factor_workspace(right, depth);
      };
      most = std::max({most, pair(rows, out, in), pair(rows, in, out), pair(out, in, rows)});
      continue;
    }
    size_t of_layer[] = {cuda::fp8_factor_workspace(rows * in), cuda::fp8_factor_workspace(out * in),
                         cuda::fp8_factor_workspace(rows * out)};
    std::sort(std::begin(of_layer), std::end(of_layer));
    most = std::max(most, of_layer[1] + of_layer[2]);
  }
  return most;
}

// Of the context rank that needs most. A ring's first step has the rank's own keys, and the blocks of all steps are as
// large.
size_t of_blocks(const RunSpec& run, Attention attention) {
  const int ranks = run.mesh.context_parallel_size;
  const bool ring = run.mesh.context_exchange() == ContextExchange::Ring;
  constexpr int kThreadsOfDevice = 1;
  if (!ring) attention.given_heads = GatheredKeys::heads_of_group(attention.kv_heads, kThreadsOfDevice);
  size_t most = 0;
  for (int part = 0; part < ranks; ++part) {
    attention.rows = SequenceRows::zig_zag(attention.seq, part, ranks);
    if (ring) attention.key_rows = attention.rows;
    if (!cuda::is_for_cudnn(attention, run.dtype)) return 0;
    most = std::max(most, cuda::blocks_workspace(attention, run.dtype, !run.mesh.no_deterministic_mode));
  }
  return most;
}

size_t of_attention(const RunSpec& run) {
  const ModelConfig& model = run.model;
  const MeshConfig& mesh = run.mesh;
  const bool by_rows = mesh.context_parallel_size > 1 && mesh.context_exchange() != ContextExchange::AllToAll;
  const int64_t tensor = mesh.tensor_model_parallel_size;
  const int64_t context = by_rows ? 1 : mesh.context_parallel_size;  // ranks that divide heads
  Attention attention;
  attention.batch = run.micro_batch_size;
  attention.seq = model.seq_length;
  attention.heads = model.num_attention_heads / tensor / context;
  // If there are more ranks than key heads, ranks have copies.
  attention.kv_heads = std::max(tensor * context, key_heads(model)) / tensor / context;
  attention.head_dim = head_width(model);
  attention.soft_cap = model.attn_logit_softcapping.value_or(0);
  const std::vector<bool> windows = window_layers(model);
  const bool in_all = !windows.empty() && std::find(windows.begin(), windows.end(), false) == windows.end();
  // As in a layer's shape, a window of all positions is no limit.
  if (in_all && model.window_size->left + 1 < model.max_position_embeddings.value_or(model.seq_length))
    attention.left = model.window_size->left;
  const bool causal = family_of_model(model).causal;
  if (by_rows) {
    if (run.masks_documents || !causal) return 0;  // plain kernels: documents, and lengths of samples
    attention.causal = true;
    attention.dropout.probability = model.attention_dropout;
    return of_blocks(run, attention);
  }
  if (run.masks_documents && model.attention_dropout > 0) return 0;  // plain kernels: is_for_cudnn
  if (!cuda::is_for_cudnn(attention, run.dtype)) return 0;
  return cuda::attention_workspace({attention.batch, attention.seq, attention.heads, attention.kv_heads,
                                    attention.head_dim, !causal, !run.mesh.no_deterministic_mode,
                                    model.attention_dropout > 0});
}

}  // namespace

size_t device_workspace(const RunSpec& run) {
  if (run.mesh.device != ComputeDevice::Cuda) return 0;
  const size_t of_products = cuda::kProductWorkspace + (run.products_in_8bit ? largest_factors(run) : 0);
  const int64_t rows = run.micro_batch_size * run.model.seq_length;
  const size_t of_routers =
      run.model.num_experts ? cuda::router_workspace(rows * run.model.moe_router_topk) : 0;
  return std::max({of_products, of_attention(run), cuda::embedding_workspace(rows), of_routers});
}

}  // namespace trifold
