#include "config/subjects/mesh.h"

#include <algorithm>

#include "config/options/bounds.h"
#include "config/subjects/experts.h"
#include "config/subjects/model_family.h"

namespace trifold {

void add_ranks(OptionTable& table, MeshConfig& mesh) {
  table.add("ranks", &mesh.ranks, "Number of ranks: threads of this process, or the processes of mpirun.")
      .range(1, kMaxRanks)
      .of_execution()
      .compares(Relation::MultipleOf, "ranks-per-node");
}

void add_host(OptionTable& table, MeshConfig& mesh) {
  table.add("threads-per-rank", &mesh.threads_per_rank, "Compute threads of each rank.")
      .range(1, 1 << 16)
      .absent("the cores of the host, divided among its ranks")
      .of_host()
      .of_execution();
  table.add("device", &mesh.device, "Device that computes; auto is the CPU.").of_execution();
  table
      .add("distributed-timeout-minutes", &mesh.distributed_timeout_minutes,
           "Minutes a rank waits for another before the run fails; six times as long while a checkpoint is "
           "written or data are late. Time during which the whole run is suspended does not count.")
      .range(0.001, 525'600)
      .of_execution();
  table
      .add(
          "flight-dir", &mesh.flight_dir,
          "Folder in which every rank keeps a file of its last 4096 events (actions, collectives, messages), "
          "which survives a kill; trifold inspect --flight reads it. A run makes its own folder in it.")
      .names("DIR", FileUse::Filled)
      .absent("in memory only, for the table of a time-out")
      .of_all_hosts()
      .of_execution();
}

void add_sampling_ranks(OptionTable& table, int& tensor_ranks, std::optional<int>& threads) {
  table.group("Mesh of ranks");
  table
      .add("tensor-model-parallel-size", &tensor_ranks,
           "Ranks that share each layer: threads of this process.")
      .range(1, kMaxRanks)
      .also("tp")
      .of_execution();
  table.add("threads-per-rank", &threads, "Compute threads of each rank.")
      .range(1, 1 << 16)
      .absent("the cores of the host, divided among its ranks");
}

void add_mesh(OptionTable& table, MeshConfig& mesh) {
  table.group("Mesh of ranks");
  add_ranks(table, mesh);
  table.add("tensor-model-parallel-size", &mesh.tensor_model_parallel_size, "Ranks that share each layer.")
      .range(1, kMaxRanks)
      .also("tp")
      .of_execution();
  table
      .add("pipeline-model-parallel-size", &mesh.pipeline_model_parallel_size,
           "Pipeline ranks; each holds a part of the layers.")
      .range(1, kMaxRanks)
      .also("pp")
      .of_execution();
  table
      .add("context-parallel-size", &mesh.context_parallel_size,
           "Ranks over which the positions of each sample are sharded.")
      .range(1, kMaxRanks)
      .also("cp")
      .of_execution();
  table
      .add("cp-comm-type", &mesh.cp_comm_type,
           "Attention over context ranks: gather keys and values, exchange heads, "
           "or send keys and values around a ring during the computation; needs --cp.")
      .absent("all_gather")
      .of_execution()
      .only_with({"context-parallel-size", AtLeast{2}})
      .as_note();
  add_expert_ranks(table, mesh);
  table
      .add(
          "sequence-parallel", &mesh.sequence_parallel,
          "Shard along the sequence the activations that tensor ranks would otherwise replicate; needs --tp.")
      .of_execution()
      .only_with({"tensor-model-parallel-size", AtLeast{2}})
      .as_note();
  table
      .add("data-parallel-size", &mesh.data_parallel_size,
           "Replicas of the model; each processes a part of the batch.")
      .range(1, kMaxRanks)
      .absent("ranks / (tensor x context x pipeline)")
      .also("dp")
      .of_execution();
  table
      .add("ranks-per-node", &mesh.ranks_per_node,
           "Number of consecutive ranks on a node: counts traffic between nodes and defines "
           "--zero-group-size node.")
      .range(1, kMaxRanks)
      .absent("from host names; one node for a plan")
      .of_execution();
  add_host(table, mesh);
}

void add_device_choices(OptionTable& table, MeshConfig& mesh) {
  table
      .add("enable-cuda-graph", &mesh.enable_cuda_graph,
           "Capture the kernels of each block into a CUDA graph in its second step, and replay the graph "
           "from then on; needs --device cuda and --tp 1.")
      .needs({"device", "cuda"}, "because a CPU has no kernel launches to save")
      .excludes({"tensor-model-parallel-size", AtLeast{2}},
                "because blocks with collectives in them are not captured",
                "leave the option out, or give --tp 1")
      .excludes({"context-parallel-size", AtLeast{2}},
                "because blocks with collectives in them are not captured",
                "leave the option out, or give --cp 1")
      .excludes(
          When("expert-model-parallel-size", AtLeast{2}).or_when("expert-tensor-parallel-size", AtLeast{2}),
          "because the host must know the number of rows before it can enqueue their exchange",
          "leave the option out, or give --ep 1");
  table
      .add("tune-products", &mesh.tune_products,
           "Before the first step, measure the algorithms that cuBLASLt proposes for each matrix product, "
           "use the fastest, and store the choices in this file; later runs with it produce the same bits. "
           "off: use the first proposal. --device cuda.")
      .names("FILE|off", FileUse::Kept, {{"{", "\"trifold_products\""}})
      .suggest({"off"})
      .needs({"device", "cuda"}, "because a CPU has one algorithm for each product");
  table
      .add("no-deterministic-mode", &mesh.no_deterministic_mode,
           "Let 16-bit attention sum the gradients of queries in any order: backward is faster and needs "
           "less memory, but runs are not bitwise reproducible and a resumed run differs from an "
           "uninterrupted one; --device cuda.")
      .needs({"device", "cuda"}, "because on a CPU every operation gives the same bits each time")
      .excludes("check-overlap", "because a step that is computed twice has other bits the second time");
}

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
  if (!sound_sizes(problems)) return;
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
  if (model.num_experts)  // experts are never cut, but the shared expert is
    if (const auto& shared = model.moe_shared_expert_intermediate_size)
      divisible("moe-shared-expert-intermediate-size", *shared, "");
  const bool dense_layers = !model.num_experts || (problems.sound({"moe-layer-freq", "num-layers"}) &&
                                                   count_expert_layers(model) < model.num_layers);
  if (dense_layers && model.ffn_hidden_size) {
    divisible("ffn-hidden-size", *model.ffn_hidden_size, "");
  } else if (dense_layers && has_gate(model) && problems.sound({"hidden-size"}) &&
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

// Checks that context ranks can shard each tensor rank's heads once more. Heads that tensor ranks do not divide are
// reported elsewhere.
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

}  // namespace trifold
