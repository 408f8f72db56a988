#include "plan/forecast/workload.h"

#include <algorithm>
#include <cmath>

#include "config/fields/pipeline_choice.h"
#include "config/subjects/model_family.h"
#include "layout/zero_sharing.h"
#include "models/block_flops.h"

namespace trifold {

double Workload::cut_attention_weights() const {
  if (!latent) return hidden * head_width * (2 * heads + 2 * key_heads);
  const double from = query_rank > 0 ? query_rank : hidden;
  return heads * (from * (plain_width + turned_width) + key_value_rank * (plain_width + value_width) +
                  value_width * hidden);
}

double Workload::whole_attention_weights() const {
  return latent ? hidden * (query_rank + key_value_rank + turned_width) + query_rank + key_value_rank : 0;
}

HeldWeights Workload::layer_weights() const {
  const double attention = cut_attention_weights();
  const double mlp = hidden * inner * (gated ? 3 : 2);
  if (experts > 0)
    return {(attention + mlp / inner * shared) / tensor + (2 + experts) * hidden + whole_attention_weights(),
            experts / (expert * expert_parts) * mlp};
  return {(attention + mlp) / tensor + 2 * hidden + whole_attention_weights(), 0};
}

Workload Workload::of_plain_layers() const {
  Workload plain = *this;
  plain.inner = plain_inner;
  plain.experts = plain.shared = 0;
  plain.choices = 1;
  plain.router_bytes = plain.router_gathers = 0;
  plain.stage_plain.clear();
  return plain;
}

bool Workload::has_plain_layers() const {
  return std::any_of(stage_plain.begin(), stage_plain.end(), [](int count) { return count > 0; });
}

double Workload::head_of(int stage) const {
  if (!stage_head.empty()) return stage_head[static_cast<size_t>(stage)];
  return stage + 1 == static_cast<int>(stage_layers.size()) ? 1 : 0;
}

double Workload::embedding_weights() const {
  return (tokens_at_head ? 0 : vocabulary * hidden / tensor) + (positions ? sequence * hidden : 0);
}

double Workload::head_weights() const { return vocabulary * hidden / tensor; }

double Workload::groups_among(double ranks) const {
  return std::fmod(ranks, zero_groups) == 0 ? zero_groups : ranks;
}

int64_t expert_rounds(const MeshConfig& mesh, double load) {
  if (mesh.expert_ranks() == 1 || !mesh.moe_buffer_factor) return 1;
  constexpr double kRounding = 1e-12;
  return std::max<int64_t>(1,
                           static_cast<int64_t>(std::ceil(load / *mesh.moe_buffer_factor * (1 - kRounding))));
}

Workload make_workload(const PretrainConfig& run, double padded_vocabulary, double expert_load) {
  const ModelConfig& model = run.model;
  const MeshConfig& mesh = run.mesh;
  Workload work;
  work.layers = static_cast<double>(model.num_layers);
  work.hidden = static_cast<double>(model.hidden_size);
  work.heads = static_cast<double>(model.num_attention_heads);
  work.key_heads = static_cast<double>(key_heads(model));
  work.head_width = static_cast<double>(head_width(model));
  work.latent = model.multi_latent_attention;
  if (work.latent) {
    work.query_rank = static_cast<double>(model.q_lora_rank.value_or(0));
    work.key_value_rank = static_cast<double>(model.kv_lora_rank);
    work.plain_width = static_cast<double>(model.qk_head_dim);
    work.turned_width = static_cast<double>(model.qk_pos_emb_head_dim);
    work.value_width = static_cast<double>(model.v_head_dim);
  }
  work.inner = static_cast<double>(model.num_experts ? expert_width(model) : inner_width(model));
  if (model.num_experts) {
    work.experts = static_cast<double>(*model.num_experts);
    work.shared = static_cast<double>(model.moe_shared_expert_intermediate_size.value_or(0));
    work.choices = static_cast<double>(model.moe_router_topk);
    work.plain_inner = static_cast<double>(inner_width(model));
  }
  work.gated = model.swiglu;
  work.rms_norm = model.normalization == Normalization::RmsNorm;
  work.causal = family_of_model(model).causal;
  work.hidden_dropout = model.hidden_dropout > 0;
  work.attention_dropout = model.attention_dropout > 0;
  work.sequence = static_cast<double>(model.seq_length);
  work.vocabulary = padded_vocabulary;
  work.tied = !model.untie_embeddings_and_output_weights;
  work.positions = model.position_embedding_type == PositionEmbedding::LearnedAbsolute;
  work.tensor = mesh.tensor_model_parallel_size;
  work.context = mesh.context_parallel_size;
  work.exchanges_heads = mesh.context_exchange() == ContextExchange::AllToAll;
  if (mesh.context_exchange() == ContextExchange::AllGather)
    work.context_pieces = gathered_groups(model, mesh);
  work.context_overlap = context_overlap(model, mesh);
  const RouterNumbers routers = context_of_layer(model, mesh).routers;
  const double of_choice =
      static_cast<double>(size_of(DType::I32) + size_of(accumulate_type(compute_type(run.precision))));
  const auto samples = static_cast<double>(run.batch.micro_batch_size);
  work.router_gathers = routers.calls;
  work.router_bytes = samples * work.sequence * routers.choices * of_choice +
                      work.context * (samples * routers.sample_counts + routers.micro_counts) *
                          static_cast<double>(size_of(DType::I32));
  work.data = mesh.data_parallel_size.value_or(1);
  work.expert = mesh.expert_model_parallel_size;
  work.expert_parts = mesh.expert_tensor_parallel_size;
  work.expert_load = expert_load;
  work.expert_rounds = static_cast<double>(expert_rounds(mesh, expert_load));
  work.gathers_tokens = mesh.moe_token_dispatcher_type == TokenDispatcher::AllGather;
  work.pipeline = mesh.pipeline_model_parallel_size;
  work.sequence_parallel = mesh.sequence_parallel;
  work.recompute = mesh.recompute_granularity;
  work.mlp_tiles = static_cast<double>(mesh.tiled_mlp);
  work.normalizes_sums = family_of_model(model).normalizes_sums;
  work.micro_batch = static_cast<double>(run.batch.micro_batch_size);
  const double unit = work.micro_batch * work.data;
  work.micros = static_cast<double>(run.batch.global_batch_size.value_or(static_cast<int64_t>(unit))) / unit;
  work.schedule = chosen_schedule(run.pipeline).value_or(Schedule::OneFOneB);
  work.tokens_at_head =
      work.tied && mesh.pipeline_vocab_parts > 1 && work.pipeline > 1 && !is_async(work.schedule);
  work.takes_turns = mesh.overlap_moe_expert_parallel_comm && work.schedule == Schedule::DualPipeV;
  work.chunks = stages_per_rank(run.pipeline, model.num_layers, work.pipeline).value_or(1);
  work.zero_stage = run.zero.zero_stage;
  if (work.zero_stage > 0) work.zero_groups = zero_sharing(run).groups;
  work.reduces_each = work.zero_stage >= 2 && run.zero.zero_reduce == ReducePolicy::Each;
  work.products_in_8bit = run.precision.fp8;
  work.element_bytes = static_cast<double>(size_of(compute_type(run.precision)));
  work.gradient_bytes = static_cast<double>(size_of(reduce_type(run.precision)));
  work.copy_of_weights = work.element_bytes < 4;
  return work;
}

void assume_context(const Software& software, Workload& work) {
  if (software.context == 1) return;
  work.context = software.context;
  work.exchanges_heads = false;
  work.context_pieces = 1;
  work.context_overlap = {1, (work.context - 1) / work.context};
}

std::vector<int> even_layers(int layers, int stages) {
  std::vector<int> cut(static_cast<size_t>(stages), layers / stages);
  for (int stage = 0; stage < layers % stages; ++stage) ++cut[static_cast<size_t>(stage)];
  return cut;
}

}  // namespace trifold
