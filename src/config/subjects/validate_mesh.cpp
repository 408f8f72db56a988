#include "config/subjects/validate_mesh.h"

#include "config/fields/pipeline_choice.h"
#include "config/subjects/model_family.h"

namespace trifold {

bool sound_sizes(const Problems& problems) {
  return problems.sound({"ranks", "data-parallel-size", "tensor-model-parallel-size", "context-parallel-size",
                         "pipeline-model-parallel-size"});
}

namespace {

// Ranks of one copy of the model, context ranks included; at most 2^60.
int64_t ranks_of_copy(const MeshConfig& mesh) {
  return int64_t{mesh.tensor_model_parallel_size} * mesh.context_parallel_size *
         mesh.pipeline_model_parallel_size;
}

// "tensor 2 x pipeline 2".
std::string factors_of_copy(const MeshConfig& mesh) {
  const int context = mesh.context_parallel_size;
  return fmt::format("tensor {}{} x pipeline {}", mesh.tensor_model_parallel_size,
                     context > 1 ? fmt::format(" x context {}", context) : "",
                     mesh.pipeline_model_parallel_size);
}

}  // namespace

void check_mesh(const MeshConfig& mesh, Problems& problems) {
  const int tensor = mesh.tensor_model_parallel_size;
  if (problems.sound({"tensor-model-parallel-size"}) && tensor == 1 && mesh.sequence_parallel)
    problems.about("sequence-parallel", "tensor-model-parallel-size")
        .wrong("--sequence-parallel has no effect with --tensor-model-parallel-size 1")
        .right("leave it out");
  if (problems.sound({"context-parallel-size"}) && mesh.context_parallel_size == 1 && mesh.cp_comm_type)
    problems.about("cp-comm-type", "context-parallel-size")
        .wrong("--cp-comm-type {} has no effect with --context-parallel-size 1", name_of(*mesh.cp_comm_type))
        .right("leave it out");
  if (!sound_sizes(problems)) return;
  if (mesh.ranks_per_node && problems.sound({"ranks-per-node"}) && mesh.ranks % *mesh.ranks_per_node != 0)
    problems.about("ranks", "ranks-per-node")
        .wrong("--ranks {} is not a multiple of --ranks-per-node {}", mesh.ranks, *mesh.ranks_per_node)
        .right("{}", multiples_around(mesh.ranks, *mesh.ranks_per_node));
  const int64_t model_ranks = ranks_of_copy(mesh);
  if (!mesh.data_parallel_size && mesh.ranks % model_ranks != 0) {
    problems
        .about("ranks", "tensor-model-parallel-size", "context-parallel-size", "pipeline-model-parallel-size")
        .wrong("--ranks {} is not divisible by {} = {}", mesh.ranks, factors_of_copy(mesh), model_ranks)
        .right("{}", multiples_around(mesh.ranks, model_ranks));
  } else if (mesh.data_parallel_size && model_ranks == 1 && mesh.ranks != *mesh.data_parallel_size) {
    problems.about("ranks", "data-parallel-size")
        .wrong("--ranks {} differs from --data-parallel-size {}", mesh.ranks, *mesh.data_parallel_size)
        .right("give --ranks {} or --data-parallel-size {}", *mesh.data_parallel_size, mesh.ranks);
  } else if (mesh.data_parallel_size) {
    int64_t all = 0;
    if (__builtin_mul_overflow(model_ranks, int64_t{*mesh.data_parallel_size}, &all)) all = INT64_MAX;
    if (mesh.ranks != all)
      problems
          .about("ranks", "tensor-model-parallel-size", "context-parallel-size",
                 "pipeline-model-parallel-size", "data-parallel-size")
          .wrong("--ranks {} is not {} x data {} = {}", mesh.ranks, factors_of_copy(mesh),
                 *mesh.data_parallel_size, all)
          .right("give --ranks {}{}", all,
                 mesh.ranks % model_ranks != 0
                     ? ""
                     : fmt::format(" or --data-parallel-size {}", mesh.ranks / model_ranks));
  }
}

std::optional<int> given_group_size(const ZeroConfig& zero) {
  if (!zero.zero_group_size || zero.zero_group_size->follows_nodes()) return std::nullopt;
  return zero.zero_group_size->ranks;
}

int64_t data_parallel_size(const MeshConfig& mesh) {
  const int64_t derived = mesh.ranks / ranks_of_copy(mesh);
  return mesh.data_parallel_size ? *mesh.data_parallel_size : std::max<int64_t>(derived, 1);
}

int64_t gradient_ranks(const MeshConfig& mesh) {
  return data_parallel_size(mesh) * mesh.context_parallel_size;
}

void check_batch(const BatchConfig& batch, const MeshConfig& mesh, Problems& problems) {
  if (!batch.global_batch_size || !problems.sound({"micro-batch-size", "global-batch-size"}) ||
      !sound_sizes(problems))
    return;
  const int64_t data = data_parallel_size(mesh);
  const int64_t unit = batch.micro_batch_size * data;
  if (*batch.global_batch_size % unit != 0)
    problems.about("global-batch-size", "micro-batch-size", "ranks", "data-parallel-size")
        .wrong(
            "--global-batch-size {} is not a multiple of --micro-batch-size {} x data parallel size {} = {}",
            *batch.global_batch_size, batch.micro_batch_size, data, unit)
        .right("{}", multiples_around(*batch.global_batch_size, unit));
}

void check_tensor(const PretrainConfig& config, Problems& problems) {
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  if (!problems.sound({"tensor-model-parallel-size"}) || tensor == 1) return;
  const ModelConfig& model = config.model;
  const auto divisible = [&](const char* name, int64_t value, const char* note) {
    if (problems.sound({name}) && value % tensor != 0)
      problems.about(name, "tensor-model-parallel-size")
          .wrong("--{} {}{} is not divisible by --tensor-model-parallel-size {}", name, value, note, tensor)
          .right("{}", multiples_around(value, tensor));
  };
  divisible("num-attention-heads", model.num_attention_heads, "");
  divisible("hidden-size", model.hidden_size, "");
  const int64_t groups = model.num_query_groups;
  if (model.group_query_attention && problems.sound({"num-query-groups"}) && groups % tensor != 0 &&
      tensor % groups != 0)
    problems.about("num-query-groups", "tensor-model-parallel-size")
        .wrong("--num-query-groups {} and --tensor-model-parallel-size {} do not divide each other", groups,
               tensor)
        .right(
            "one must divide the other, so that groups are divided evenly among ranks, "
            "or ranks among groups");
  if (model.num_experts)  // which are never cut, but the one that all tokens share is
    if (const auto& shared = model.moe_shared_expert_intermediate_size)
      divisible("moe-shared-expert-intermediate-size", *shared, "");
  const bool dense_layers = !model.num_experts || (problems.sound({"moe-layer-freq", "num-layers"}) &&
                                                   count_expert_layers(model) < model.num_layers);
  if (dense_layers && model.ffn_hidden_size) {
    divisible("ffn-hidden-size", *model.ffn_hidden_size, "");
  } else if (dense_layers && model.swiglu && problems.sound({"hidden-size"}) &&
             model.hidden_size % tensor == 0) {
    divisible("ffn-hidden-size", inner_width(model), ", its default,");
  }
  if (!config.mesh.sequence_parallel ||
      !problems.sound({"seq-length", "micro-batch-size", "context-parallel-size"}))
    return;
  // At most 2^60. Positions that the context axis does not divide are reported by its own check.
  const int64_t rows = model.seq_length * config.batch.micro_batch_size / config.mesh.context_parallel_size;
  if (rows % tensor != 0)
    problems
        .about("sequence-parallel", "seq-length", "micro-batch-size", "context-parallel-size",
               "tensor-model-parallel-size")
        .wrong(
            "--sequence-parallel cuts the --seq-length {} x --micro-batch-size {}{} = {} rows of a "
            "micro-batch over --tensor-model-parallel-size {}, which does not divide them",
            model.seq_length, config.batch.micro_batch_size,
            config.mesh.context_parallel_size > 1
                ? fmt::format(" / --context-parallel-size {}", config.mesh.context_parallel_size)
                : "",
            rows, tensor)
        .right("give a --seq-length that {} divides, or {}", tensor * config.mesh.context_parallel_size,
               model.num_experts ? "fewer tensor ranks: experts need --sequence-parallel with them"
                                 : "leave out --sequence-parallel");
}

namespace {

// Each tensor rank's heads are sharded once more. Heads that tensor ranks do not divide are reported elsewhere.
void check_exchanged_heads(const PretrainConfig& config, Problems& problems) {
  if (!problems.sound({"num-attention-heads", "num-query-groups", "tensor-model-parallel-size"})) return;
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  const int64_t context = config.mesh.context_parallel_size;
  const int64_t heads = config.model.num_attention_heads / tensor;
  const int64_t keys = std::max(tensor, key_heads(config.model)) / tensor;
  if (heads % context != 0 || (keys % context != 0 && context % keys != 0))
    problems
        .about("cp-comm-type", "context-parallel-size", "num-attention-heads", "num-query-groups",
               "tensor-model-parallel-size")
        .wrong(
            "--cp-comm-type a2a cuts the {} query heads and {} key heads of a tensor rank over "
            "--context-parallel-size {}, which must divide the query heads, "
            "and divide the key heads or be a multiple of them",
            heads, keys, context)
        .right("give another size, or --cp-comm-type all_gather or p2p");
}

}  // namespace

void check_context(const PretrainConfig& config, Problems& problems) {
  const int64_t context = config.mesh.context_parallel_size;
  if (!problems.sound({"context-parallel-size"}) || context == 1) return;
  if (config.mesh.context_exchange() == ContextExchange::AllToAll) check_exchanged_heads(config, problems);
  const bool causal = family_of_model(config.model).causal;
  if (!causal && problems.sound({"seq-length"}) && config.model.seq_length % context != 0)
    problems.about("context-parallel-size", "seq-length")
        .wrong(
            "--seq-length {} is not a multiple of --context-parallel-size {}, whose ranks share a sample evenly",
            config.model.seq_length, context)
        .right("{}", multiples_around(config.model.seq_length, context));
  if (causal && problems.sound({"seq-length"}) && config.model.seq_length % (2 * context) != 0)
    problems.about("context-parallel-size", "seq-length")
        .wrong(
            "--seq-length {} is not a multiple of 2 x --context-parallel-size {} = {}: each rank has "
            "positions from both ends of a sample, so that all have as much work",
            config.model.seq_length, context, 2 * context)
        .right("{}", multiples_around(config.model.seq_length, 2 * context));
}

namespace {

void check_reduce_each(const PretrainConfig& config, const std::optional<Schedule>& schedule,
                       Problems& problems) {
  if (problems.sound({"zero-stage"}) && config.zero.zero_stage < 2)
    problems.about("zero-reduce", "zero-stage")
        .wrong(
            "--zero-reduce each has no effect with --zero-stage {}, in which every rank holds all gradients",
            config.zero.zero_stage)
        .right("give --zero-stage 2 or 3, or --zero-reduce once");
  if (schedule && is_async(*schedule))
    problems.about("zero-reduce", "schedule")
        .wrong(
            "--zero-reduce each is not possible with --schedule {}, which updates the weights inside the "
            "pipeline and reduces once an update",
            schedule_name(*schedule))
        .right("give --zero-reduce once, or a synchronous schedule such as 1f1b");
}

// Between groups a slice is cut into one part per group, each of at least one element (DataSums); slices have at least
// 256.
constexpr int64_t kMostGroupsInBf16 = 256;
void check_reduce_in_bf16(const PretrainConfig& config, Problems& problems) {
  const int64_t data = gradient_ranks(config.mesh);
  const bool sums_experts =
      config.model.num_experts && config.mesh.tensor_model_parallel_size > config.mesh.expert_ranks();
  if (data == 1)
    problems.about("grad-reduce-in-bf16", "ranks", "data-parallel-size")
        .wrong("--grad-reduce-in-bf16 {} with one data-parallel rank, {}",
               sums_experts ? "is not possible" : "has no effect",
               sums_experts ? "where only tensor ranks sum gradients, those of experts"
                            : "which sends no gradients")
        .right("leave it out");
  const int64_t group = given_group_size(config.zero).value_or(data);
  if (group > 0 && data / group > kMostGroupsInBf16)
    problems.about("grad-reduce-in-bf16", "zero-group-size", "ranks", "data-parallel-size")
        .wrong(
            "--grad-reduce-in-bf16 with {} groups of --zero-group-size {} is not possible, because gradients "
            "travel in bf16 between at most {} groups",
            data / group, group, kMostGroupsInBf16)
        .right("give at least --zero-group-size {}", (data + kMostGroupsInBf16 - 1) / kMostGroupsInBf16);
}

}  // namespace

void check_graphs(const MeshConfig& mesh, Problems& problems) {
  if (!mesh.enable_cuda_graph) return;
  if (mesh.device != ComputeDevice::Cuda)
    problems.about("enable-cuda-graph", "device")
        .wrong("--enable-cuda-graph needs --device cuda, because a CPU has no kernel launches to save")
        .right("give both, or neither");
  if (mesh.tensor_model_parallel_size > 1)
    problems.about("enable-cuda-graph", "tensor-model-parallel-size")
        .wrong(
            "--enable-cuda-graph is not possible with --tensor-model-parallel-size {}, because blocks with "
            "collectives in them are not captured",
            mesh.tensor_model_parallel_size)
        .right("leave the option out, or give --tp 1");
  if (mesh.context_parallel_size > 1)
    problems.about("enable-cuda-graph", "context-parallel-size")
        .wrong(
            "--enable-cuda-graph is not possible with --context-parallel-size {}, because blocks with "
            "collectives in them are not captured",
            mesh.context_parallel_size)
        .right("leave the option out, or give --cp 1");
  if (mesh.expert_ranks() > 1)
    problems.about("enable-cuda-graph", "expert-model-parallel-size", "expert-tensor-parallel-size")
        .wrong(
            "--enable-cuda-graph is not possible with experts over {} ranks, because the host must know how many "
            "rows travel before it can enqueue their exchange",
            mesh.expert_ranks())
        .right("leave the option out, or give --ep 1");
}

void check_tuning(const MeshConfig& mesh, Problems& problems) {
  if (mesh.tune_products != "off" && mesh.device != ComputeDevice::Cuda)
    problems.about("tune-products", "device")
        .wrong("--tune-products {} needs --device cuda, because a CPU has one algorithm for each product",
               mesh.tune_products)
        .right("give both, or neither");
}

void check_determinism(const PretrainConfig& config, Problems& problems) {
  if (!config.mesh.no_deterministic_mode) return;
  if (config.mesh.device != ComputeDevice::Cuda)
    problems.about("no-deterministic-mode", "device")
        .wrong(
            "--no-deterministic-mode needs --device cuda, because on a CPU "
            "every operation gives the same bits each time")
        .right("give both, or neither");
  if (config.log.check_overlap > 0)
    problems.about("no-deterministic-mode", "check-overlap")
        .wrong(
            "--no-deterministic-mode is not possible with --check-overlap {}, because a step that is "
            "computed twice has other bits the second time",
            config.log.check_overlap)
        .right("leave out one of the two");
}

void check_zero(const PretrainConfig& config, Problems& problems) {
  const std::optional<Schedule> schedule = chosen_schedule(config.pipeline);
  if (config.zero.zero_stage == 3 && schedule && is_async(*schedule))
    problems.about("zero-stage", "schedule")
        .wrong(
            "--zero-stage 3 is not possible with --schedule {}, because several versions of the weights are "
            "in use at once and must be resident",
            schedule_name(*schedule))
        .right("give at most --zero-stage 2");
  const bool on_device = config.mesh.device == ComputeDevice::Cuda;
  if (config.zero.offloads_to_host() && !on_device)
    problems.about("offload", "device")
        .wrong(
            "--offload host has no effect without --device cuda, "
            "because on a CPU the state is in host memory already")
        .right("leave it out, or name a folder on a fast disk");
  if (config.zero.offloads() && !config.zero.offloads_to_host() && on_device)
    problems.about("offload", "device")
        .wrong("--offload {} is not possible with --device cuda, because state in files is for CPUs",
               config.zero.offload.text())
        .right("give --offload host, which keeps it in the host's memory");
  if (config.zero.zero_reduce == ReducePolicy::Each) check_reduce_each(config, schedule, problems);
  if (config.precision.grad_reduce_in_bf16 && sound_sizes(problems)) check_reduce_in_bf16(config, problems);
  const std::optional<int> group = given_group_size(config.zero);
  if (!group || !sound_sizes(problems)) return;
  const int64_t data = gradient_ranks(config.mesh);
  if (data % *group != 0)
    problems.about("zero-group-size", "ranks", "data-parallel-size")
        .wrong("--zero-group-size {} does not divide the data-parallel size {}", *group, data)
        .right("give a divisor of it");
}

}  // namespace trifold
