#include "plan/forecast/workload.h"

#include <algorithm>
#include <cmath>

#include "config/subjects/model_family.h"
#include "layout/zero_sharing.h"

namespace trifold {

double Workload::groups_among(double ranks) const {
  return std::fmod(ranks, zero_groups) == 0 ? zero_groups : ranks;
}

int64_t expert_rounds(const MeshConfig& mesh, double load) {
  if (mesh.expert_ranks() == 1 || !mesh.moe_buffer_factor) return 1;
  constexpr double kRounding = 1e-12;
  return std::max<int64_t>(1,
                           static_cast<int64_t>(std::ceil(load / *mesh.moe_buffer_factor * (1 - kRounding))));
}

Workload make_workload(const RunSpec& run, double padded_vocabulary) {
  const ModelConfig& model = run.model;
  const MeshConfig& mesh = run.mesh;
  Workload work;
  work.layers = static_cast<double>(model.num_layers);
  work.hidden = static_cast<double>(model.hidden_size);
  work.heads = static_cast<double>(model.num_attention_heads);
  work.key_heads = static_cast<double>(key_heads(model));
  work.head_width = static_cast<double>(head_width(model));
  work.latent = model.multi_latent_attention;
  work.inner = static_cast<double>(model.num_experts ? expert_width(model) : inner_width(model));
  work.experts = static_cast<double>(model.num_experts.value_or(0));
  work.gated = has_gate(model);
  work.rms_norm = model.normalization == Normalization::RmsNorm;
  work.hidden_dropout = model.hidden_dropout > 0;
  work.attention_dropout = model.attention_dropout > 0;
  work.sequence = static_cast<double>(model.seq_length);
  work.vocabulary = padded_vocabulary;
  work.tied = !model.untie_embeddings_and_output_weights;
  work.tensor = mesh.tensor_model_parallel_size;
  work.context = mesh.context_parallel_size;
  work.data = mesh.data_parallel_size.value_or(1);
  work.expert = mesh.expert_model_parallel_size;
  work.expert_parts = mesh.expert_tensor_parallel_size;
  work.pipeline = mesh.pipeline_model_parallel_size;
  work.sequence_parallel = mesh.sequence_parallel;
  work.recompute = mesh.recompute_granularity;
  work.micro_batch = static_cast<double>(run.micro_batch_size);
  const double unit = work.micro_batch * work.data;
  work.micros = static_cast<double>(run.global_batch_size) / unit;
  work.schedule = run.order.schedule.value_or(Schedule::OneFOneB);
  work.tokens_at_head =
      work.tied && mesh.pipeline_vocab_parts > 1 && work.pipeline > 1 && !is_async(work.schedule);
  work.takes_turns = mesh.overlap_moe_expert_parallel_comm && work.schedule == Schedule::DualPipeV;
  work.chunks = run.order.stages_per_rank;
  work.zero_stage = run.zero.zero_stage;
  if (work.zero_stage > 0) work.zero_groups = zero_sharing(run).groups;
  work.reduces_each = run.reduces_each();
  work.products_in_8bit = run.products_in_8bit;
  work.element_bytes = static_cast<double>(size_of(run.dtype));
  work.gradient_bytes = static_cast<double>(size_of(run.sum_dtype));
  work.copy_of_weights = work.element_bytes < 4;
  return work;
}

void assume_context(const Software& software, Workload& work) {
  if (software.context > 1) work.context = software.context;
}

}  // namespace trifold
