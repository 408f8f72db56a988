#include "config/commands/search_candidates.h"

#include <algorithm>

#include "config/fields/pipeline_choice.h"
#include "config/subjects/model_family.h"

namespace trifold {

// Tensor ranks communicate in every layer, so they share a node; they must divide the dims that they shard.
std::vector<int64_t> tensor_candidates(const SearchJob& job, const Layout& before) {
  const ModelConfig& model = job.run.model;
  const int64_t keys = key_heads(model);
  const int64_t inner =  // these ranks cut no expert but the one that all tokens share
      model.num_experts ? model.moe_shared_expert_intermediate_size.value_or(0) : inner_width(model);
  const int64_t ranks = job.run.mesh.ranks / before[SearchAxis::Context];
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min<int64_t>(ranks, job.devices_per_node); ++size) {
    const bool even = ranks % size == 0 && job.devices_per_node % size == 0 &&
                      model.num_attention_heads % size == 0 && model.hidden_size % size == 0 &&
                      inner % size == 0;
    if (even && (keys % size == 0 || size % keys == 0)) sizes.push_back(size);
  }
  return sizes;
}

// Context ranks are tried for long samples, of which each rank's part still fills its device. Samples of models that
// are not causal are short.
std::vector<int64_t> context_candidates(const SearchJob& job, const Layout& before) {
  constexpr int64_t kLeastPositions = 4096;
  const ModelConfig& model = job.run.model;
  const int64_t ranks = job.run.mesh.ranks / before[SearchAxis::Tensor];
  std::vector<int64_t> sizes{1};
  if (!family_of_model(model).causal) return sizes;
  for (int64_t size = 2; size <= std::min(ranks, model.seq_length / kLeastPositions); ++size)
    if (ranks % size == 0 && model.seq_length % (2 * size) == 0) sizes.push_back(size);
  return sizes;
}

// Whether a GPU has fast kernels for attention over the positions of `context` ranks: cuDNN's, in blocks of whole tiles
// (ops/cuda/attention_choice.h).
bool has_fast_blocks(const PretrainConfig& run, int64_t context) {
  constexpr int64_t kTile = 128;
  const ModelConfig& model = run.model;
  return (run.precision.bf16 || run.precision.fp16) && family_of_model(model).causal &&
         model.attention_dropout == 0 && !run.data.reset_attention_mask && !model.window_size &&
         !model.attn_logit_softcapping && model.seq_length % (2 * context * kTile) == 0;
}

// Heads are exchanged if the context ranks can divide them evenly.
std::vector<int64_t> exchange_candidates(const SearchJob& job, const Layout& before) {
  const int64_t context = before[SearchAxis::Context];
  if (context == 1) return {kNoExchange};
  const int64_t tensor = before[SearchAxis::Tensor];
  const int64_t heads = job.run.model.num_attention_heads / tensor;
  const int64_t keys = std::max(tensor, key_heads(job.run.model)) / tensor;
  const bool even = heads % context == 0 && (keys % context == 0 || context % keys == 0);
  const bool by_rows = job.run.mesh.device != ComputeDevice::Cuda || has_fast_blocks(job.run, context);
  std::vector<int64_t> exchanges;
  for (const auto& entry : Names<ContextExchange>::kAll)
    if (entry.value == ContextExchange::AllToAll ? even : by_rows)
      exchanges.push_back(static_cast<int64_t>(entry.value));
  return exchanges;
}

// Every stage has a layer, and data-parallel ranks divide the batch.
std::vector<int64_t> pipeline_candidates(const SearchJob& job, const Layout& before) {
  const int64_t rest = job.run.mesh.ranks / (before[SearchAxis::Tensor] * before[SearchAxis::Context]);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(rest, job.run.model.num_layers); ++size)
    if (rest % size == 0 && *job.run.batch.global_batch_size % (rest / size) == 0) sizes.push_back(size);
  return sizes;
}

// Sizes that give each of the ranks that share experts equally many.
std::vector<int64_t> expert_candidates(const SearchJob& job, const Layout& before) {
  const int64_t experts = job.run.model.num_experts.value_or(1);
  const int64_t ranks = job.run.mesh.ranks / before[SearchAxis::Pipeline];
  const MeshConfig& mesh = job.run.mesh;
  // One rank sends no rows, and then needs no buffer for them.
  const bool several = mesh.moe_buffer_factor || mesh.moe_token_dispatcher_type != TokenDispatcher::AllToAll;
  std::vector<int64_t> sizes;
  for (int64_t size = several ? 2 : 1; size <= std::min(experts, ranks); ++size)
    if (experts % size == 0 && ranks % size == 0) sizes.push_back(size);
  return sizes;
}

// Experts are whole, or cut over the same number of ranks as the other layers.
std::vector<int64_t> expert_tensor_candidates(const SearchJob& job, const Layout& before) {
  const int64_t tensor = before[SearchAxis::Tensor];
  if (!job.run.model.num_experts || tensor == 1) return {1};
  const int64_t ranks = job.run.mesh.ranks / before[SearchAxis::Pipeline];
  const bool even =
      expert_width(job.run.model) % tensor == 0 && ranks % (tensor * before[SearchAxis::Expert]) == 0;
  return even ? std::vector<int64_t>{1, tensor} : std::vector<int64_t>{1};
}

// An output layer that costs about as much as a stage, or more, is cut into up to three parts for each pipeline rank:
// the most that divide it, because small parts balance best.
std::vector<int64_t> head_parts_candidates(const SearchJob& job, const Layout& before) {
  const ModelConfig& model = job.run.model;
  const MeshConfig& mesh = job.run.mesh;
  const int64_t ranks = before[SearchAxis::Pipeline];
  if (mesh.cut.pipeline_model_parallel_layout) return {mesh.pipeline_vocab_parts};
  if (ranks == 1 || !family_of_model(model).cuts_head || needs_whole_tensors(job.run.optimizer.optimizer))
    return {1};
  const int64_t unit = model.make_vocab_size_divisible_by * before[SearchAxis::Tensor];
  const int64_t rows = (*model.vocab_size + unit - 1) / unit * model.make_vocab_size_divisible_by;
  // The cost in layers, each with four squares of the width in attention and eight in the MLP.
  const double head = static_cast<double>(*model.vocab_size) / (12 * static_cast<double>(model.hidden_size));
  const auto stages = static_cast<double>(ranks * before[SearchAxis::Stages]);
  std::vector<int64_t> parts{1};
  if (2 * head * stages < static_cast<double>(model.num_layers) + head) return parts;
  for (int64_t each = 3; each >= 1 && parts.size() == 1; --each)
    if (rows % (each * ranks) == 0) parts.push_back(each * ranks);
  return parts;
}

// With one pipeline rank all schedules compute the same; several stages per rank need enough layers.
std::vector<int64_t> schedule_candidates(const SearchJob& job, const Layout& before) {
  const int64_t ranks = before[SearchAxis::Pipeline];
  if (ranks == 1) return {static_cast<int64_t>(Schedule::OneFOneB)};
  std::vector<int64_t> schedules;
  for (const Schedule schedule : job.schedules) {
    const bool several = needs_two_chunks(schedule) || schedule == Schedule::Interleaved;
    if (!several || job.run.model.num_layers >= 2 * ranks)
      schedules.push_back(static_cast<int64_t>(schedule));
  }
  return schedules;
}

namespace {

// Whether `stages` stages can have equal numbers of layers, where the embedding and the head may each count as one; an
// option for equal stages says which of them count.
bool divides_layers(const PretrainConfig& run, int64_t stages) {
  const StageCutConfig& cut = run.mesh.cut;
  const int ends =
      int{cut.account_for_embedding_in_pipeline_split} + int{cut.account_for_loss_in_pipeline_split};
  const bool says_which = cut.pipeline_cut == PipelineCut::Even || ends > 0;
  for (int extra = says_which ? ends : 0; extra <= (says_which ? ends : 2); ++extra)
    if ((run.model.num_layers + extra) % stages == 0) return true;
  return false;
}

}  // namespace

// Numbers that evenly divide the layers, or the layers plus one or both ends (embedding, head).
std::vector<int64_t> stages_candidates(const SearchJob& job, const Layout& before) {
  const auto schedule = static_cast<Schedule>(before[SearchAxis::Schedule]);
  if (needs_two_chunks(schedule)) return {2};
  if (!takes_any_chunks(schedule)) return {1};
  const int64_t layers = job.run.model.num_layers;
  std::vector<int64_t> stages;
  if (schedule != Schedule::Interleaved) stages.push_back(1);
  for (int64_t count = 2; count * before[SearchAxis::Pipeline] <= layers; ++count)
    if (divides_layers(job.run, count * before[SearchAxis::Pipeline])) stages.push_back(count);
  return stages;
}

// Powers of two. The number of micro-batches of interleaved schedules is a multiple of the pipeline ranks.
std::vector<int64_t> micro_batch_candidates(const SearchJob& job, const Layout& before) {
  constexpr int64_t kLargest = 16;
  const auto schedule = static_cast<Schedule>(before[SearchAxis::Schedule]);
  const int64_t ranks = before[SearchAxis::Pipeline];
  const int64_t samples = *job.run.batch.global_batch_size / job.data(before);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(kLargest, samples); size *= 2) {
    if (samples % size != 0) continue;
    const int64_t micros = samples / size;
    const int least =
        min_micros(schedule, static_cast<int>(ranks), static_cast<int>(before[SearchAxis::Stages]));
    if (micros < least || (schedule == Schedule::Interleaved && micros % ranks != 0)) continue;
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<int64_t> sequence_parallel_candidates(const SearchJob& job, const Layout& before) {
  const int64_t rows =
      job.run.model.seq_length * before[SearchAxis::MicroBatch] / before[SearchAxis::Context];
  const int64_t tensor = before[SearchAxis::Tensor];
  if (tensor == 1 || rows % tensor != 0) return {0};
  if (job.run.model.num_experts)
    return {1};  // else all tensor ranks would compute the experts of the same rows
  return {0, 1};
}

// Sharded weights would be gathered for every micro-batch of every stage of a pipeline. Alternating halves need whole
// backwards, which a reduction after each micro-batch would cut.
std::vector<int64_t> zero_candidates(const SearchJob& job, const Layout& before) {
  if (job.data(before) * before[SearchAxis::Context] == 1) return {0};
  if (job.run.mesh.overlap_moe_expert_parallel_comm) return {0, 1};
  if (before[SearchAxis::Pipeline] > 1) return {0, 1, 2};
  return {0, 1, 2, 3};
}

std::vector<int64_t> recompute_candidates(const SearchJob&, const Layout&) {
  std::vector<int64_t> values;
  for (const auto& entry : Names<RecomputeGranularity>::kAll)
    values.push_back(static_cast<int64_t>(entry.value));
  return values;
}

}  // namespace trifold
