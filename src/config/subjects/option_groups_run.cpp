// Options of training and of the machines.
#include "config/subjects/experts.h"
#include "config/subjects/option_groups.h"

#include "config/fields/pipeline_choice.h"

namespace trifold {

void add_ranks(OptionTable& table, MeshConfig& mesh) {
  table.add("ranks", &mesh.ranks, "Number of ranks: threads of this process, or the processes of mpirun.")
      .range(1, kMaxRanks)
      .of_execution();
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
           "written. Time during which the whole run is suspended does not count.")
      .range(0.001, 525'600)
      .of_execution();
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
      .of_execution();
  add_expert_ranks(table, mesh);
  table
      .add(
          "sequence-parallel", &mesh.sequence_parallel,
          "Shard along the sequence the activations that tensor ranks would otherwise replicate; needs --tp.")
      .of_execution();
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
  table.add("enable-cuda-graph", &mesh.enable_cuda_graph,
            "Capture the kernels of each block into a CUDA graph in its second step, and replay the graph "
            "from then on; needs --device cuda and --tp 1.");
  table
      .add("tune-products", &mesh.tune_products,
           "Before the first step, measure the algorithms that cuBLASLt proposes for each matrix product, "
           "use the fastest, and store the choices in this file; later runs with it produce the same bits. "
           "off: use the first proposal. --device cuda.")
      .names("FILE|off", FileUse::Kept, {{"{", "\"trifold_products\""}})
      .suggest({"off"});
  table.add("no-deterministic-mode", &mesh.no_deterministic_mode,
            "Let 16-bit attention sum the gradients of queries in any order: backward is faster and needs "
            "less memory, but runs are not bitwise reproducible and a resumed run differs from an "
            "uninterrupted one; --device cuda.");
}

Option& add_zero_stage(OptionTable& table, ZeroConfig& zero) {
  return table
      .add("zero-stage", &zero.zero_stage,
           "What data-parallel ranks shard: 0 nothing, 1 the optimizer state, "
           "2 also gradients, 3 also weights.")
      .range(0, 3)
      .of_execution();
}

void add_zero(OptionTable& table, ZeroConfig& zero) {
  table.group("ZeRO");
  add_zero_stage(table, zero);
  table
      .add("zero-min-unit-params", &zero.zero_min_unit_params,
           "Minimum number of parameters in a unit; each unit is reduced and gathered as a whole.")
      .range(1, int64_t{1} << 40)
      .absent("4194304")
      .of_execution();
  table
      .add("zero-group-size", &zero.zero_group_size,
           "Data-parallel ranks that shard among themselves: a number, or node for those of a node. Groups "
           "are replicas of each other and exchange only slices of gradients.")
      .takes("N|node")
      .suggest({"node"})
      .absent("all data-parallel ranks")
      .of_execution();
  table
      .add("offload", &zero.offload,
           "Where to keep the optimizer state and, with --zero-stage 3, the weight shards. A folder on a "
           "fast disk: one memory-mapped file per rank, of which only the part in use is in memory. host: "
           "host memory, for the optimizer state with --device cuda. none: no offload.")
      .names("DIR|host|none", FileUse::Scratch)
      .of_host()
      .of_execution();
  table
      .add("zero-reduce", &zero.zero_reduce,
           "When to reduce gradients over data-parallel ranks: once a step, or after each micro-batch, which "
           "sends more but holds less; each needs --zero-stage 2.")
      .absent("each if the stage is 2 or 3 and a step has one micro-batch, otherwise once")
      .of_execution();
}

void add_pipeline(OptionTable& table, PipelineConfig& pipeline, MeshConfig& mesh) {
  StageCutConfig& cut = mesh.cut;
  table.group("Pipeline");
  table
      .add("schedule", &pipeline.schedule,
           fmt::format("Pipeline schedule: {}; or a file of actions, one row per rank.",
                       fmt::join(known_schedules(), ", ")))
      .reads("NAME|FILE.csv")
      .suggest(known_schedules())
      .absent("1f1b; interleaved if a rank has several stages")
      .of_execution();
  table
      .add("schedule-max-in-flight", &pipeline.schedule_max_in_flight,
           "--schedule auto: maximum number of micro-batches in flight on a rank.")
      .range(1, 1 << 20)
      .absent("twice the pipeline ranks")
      .of_execution();
  table
      .add("schedule-costs", &pipeline.schedule_costs,
           "--schedule auto: block times, a file written by bench --what blocks --json.")
      .reads("FILE")
      .absent("the blocks' flops")
      .of_execution();
  table
      .add("num-layers-per-virtual-pipeline-stage", &pipeline.num_layers_per_virtual_pipeline_stage,
           "Layers per stage if ranks have several stages; times the stages per rank and the pipeline ranks "
           "it must equal --num-layers.")
      .range(1, 1 << 20)
      .absent("set by --num-virtual-stages-per-pipeline-rank")
      .of_execution();
  table
      .add("num-virtual-stages-per-pipeline-rank", &pipeline.num_virtual_stages_per_pipeline_rank,
           "Stages of each rank.")
      .range(1, 1 << 20)
      .absent("1, or 2 for interleaved, zb-v and dualpipe-v")
      .of_execution();
  table
      .add("async-window", &pipeline.async_window,
           "pipedream, pipedream-2bw: global batches between drains of the pipeline.")
      .range(1, kMaxCount)
      .absent("100, or --train-iters if that is less");
  table
      .add("pipeline-cut", &cut.pipeline_cut,
           "How layers are divided among stages: cost minimizes the cost of the slowest stage, "
           "even gives equal numbers.")
      .of_execution();
  table
      .add("pipeline-model-parallel-layout", &cut.pipeline_model_parallel_layout,
           "The blocks of every stage: E embedding, t a layer, L loss, | between stages, (...)*N repeated, "
           "such as \"Et|(tt|)*6t|L\".")
      .takes("LAYOUT")
      .absent("set by --pipeline-cut")
      .of_execution();
  table
      .add("decoder-first-pipeline-num-layers", &cut.decoder_first_pipeline_num_layers,
           "Layers of the first pipeline rank; ranks without an explicit number get equal numbers.")
      .range(0, 1 << 20)
      .absent("set by --pipeline-cut")
      .of_execution();
  table
      .add("decoder-last-pipeline-num-layers", &cut.decoder_last_pipeline_num_layers,
           "Layers of the last pipeline rank.")
      .range(0, 1 << 20)
      .absent("set by --pipeline-cut")
      .of_execution();
  table
      .add("account-for-embedding-in-pipeline-split", &cut.account_for_embedding_in_pipeline_split,
           "Count the embedding as a layer when layers are divided equally.")
      .of_execution();
  table
      .add("account-for-loss-in-pipeline-split", &cut.account_for_loss_in_pipeline_split,
           "Count the output layer with the loss as a layer when layers are divided equally.")
      .of_execution();
  table
      .add(
          "pipeline-vocab-parts", &mesh.pipeline_vocab_parts,
          "Parts over the vocabulary that the output layer and its loss are cut into; stages share them like "
          "layers. In a layout each is an L.")
      .range(1, 4096)
      .of_execution();
}

void add_recompute(OptionTable& table, MeshConfig& mesh) {
  table.group("Memory");
  table
      .add("recompute-granularity", &mesh.recompute_granularity,
           "Activations that backward recomputes instead of storing: those of attention (selective) or of "
           "whole layers (full).")
      .of_execution();
  table
      .add("tiled-mlp", &mesh.tiled_mlp,
           "Compute the MLP in this many tiles of the rows of a micro-batch, one after the other; "
           "its inner activations exist for one tile at a time, and backward recomputes them.")
      .range(1, kMaxSize)
      .of_execution();
  table
      .add("cpu-offloading-num-layers", &mesh.cpu_offloading_num_layers,
           "Number of layers, the first of each pipeline stage, whose activations are off-loaded between "
           "forward and backward: to a file in --cpu-offloading-folder or, with --device cuda, "
           "to pinned host memory.")
      .range(0, kMaxSize)
      .of_execution();
  table
      .add("cpu-offloading-folder", &mesh.cpu_offloading_folder,
           "Folder on a fast disk for the activations of --cpu-offloading-num-layers, one file per rank.")
      .names("DIR", FileUse::Scratch)
      .absent("none")
      .of_all_hosts()
      .of_execution();
}

void add_memory_limit(OptionTable& table, MeshConfig& mesh) {
  table
      .add("memory-limit", &mesh.memory_limit,
           "Memory of a rank in GiB; a plan that needs more is rejected with a suggestion that fits.")
      .positive()
      .absent("ranks share the memory of their host or device")
      .of_host();
}

void add_batch(OptionTable& table, BatchConfig& batch) {
  table.group("Batch");
  table.add("micro-batch-size", &batch.micro_batch_size, "Sequences per micro-batch.")
      .need()
      .range(1, kMaxSize)
      .of_execution();
  table.add("global-batch-size", &batch.global_batch_size, "Sequences per step over all ranks.")
      .range(1, kMaxSize)
      .absent("--micro-batch-size x data parallel size");
}

void add_exit(OptionTable& table, std::optional<int64_t>& interval, std::optional<double>& minutes) {
  table.add("exit-interval", &interval, "Save and exit after a step divisible by this.")
      .range(1, kMaxCount)
      .absent("train to the end")
      .of_execution();
  table
      .add("exit-duration-in-mins", &minutes,
           "Save and exit after the first step that ends more than this many minutes after the start.")
      .range(0.001, 525'600)
      .absent("no limit")
      .of_execution();
}

void add_length(OptionTable& table, BatchConfig& batch, uint64_t& seed) {
  table.group("Length of the run");
  table.add("train-iters", &batch.train_iters, "Steps to train.").need("train-epochs").range(1, kMaxCount);
  if (batch.train_epochs) table.change("train-iters").optional().range(0, kMaxCount);
  table
      .add("train-epochs", &batch.train_epochs,
           "Train for this many passes over the training data instead of --train-iters; each pass uses every "
           "sample exactly once, and its last global batch may be smaller.")
      .range(1, kMaxCount)
      .absent("set by --train-iters");
  add_exit(table, batch.exit_interval, batch.exit_duration_in_mins);
  table.add("seed", &seed, "Seed of initial weights, data order and dropout.");
}

void add_lr(OptionTable& table, LrConfig& lr) {
  table.group("Learning rate");
  table.add("lr", &lr.lr, "Learning rate after warm-up.").need().positive();
  table.add("min-lr", &lr.min_lr, "Learning rate after decay.").at_least(0);
  table.add("lr-decay-style", &lr.lr_decay_style, "Shape of the decay after warm-up.");
  table
      .add("lr-decay-power", &lr.lr_decay_power,
           "polynomial: exponent of the remaining fraction of the decay.")
      .positive();
  table
      .add("lr-decay-start", &lr.lr_decay_start,
           "parabola: step, counted from 1, at which the decay starts, with the square of the remaining "
           "fraction; 0: no decay.")
      .range(0, kMaxCount);
  table
      .add("lr-decay-iters", &lr.lr_decay_iters,
           "Step at which the decay ends; for parabola its number of steps.")
      .range(1, kMaxCount)
      .absent("--train-iters");
  table.add("lr-warmup-iters", &lr.lr_warmup_iters, "Steps of linear warm-up.").range(0, kMaxCount);
  table
      .add("lr-warmup-fraction", &lr.lr_warmup_fraction,
           "Length of the warm-up as a fraction of --lr-decay-iters, instead of --lr-warmup-iters.")
      .fraction()
      .absent("set by --lr-warmup-iters");
  table.add("lr-warmup-init", &lr.lr_warmup_init, "Learning rate at the start of warm-up.").at_least(0);
  table.add("lr-wsd-decay-style", &lr.lr_wsd_decay_style, "Shape of the final decay of WSD.");
  table
      .add("lr-wsd-decay-iters", &lr.lr_wsd_decay_iters,
           "Length of the final decay of WSD in steps; required with WSD.")
      .range(1, kMaxCount)
      .absent("no WSD");
}

void add_optimizer(OptionTable& table, OptimizerConfig& optimizer) {
  table.group("Optimizer");
  table.add("optimizer", &optimizer.optimizer, "Update rule; adam decouples weight decay (AdamW).");
  table
      .add("weight-decay", &optimizer.weight_decay,
           "Weight decay; not applied to biases and other one-dimensional tensors.")
      .at_least(0);
  table.add("clip-grad", &optimizer.clip_grad, "Clip gradients to this global norm; 0: no clipping.")
      .at_least(0);
  table.add("adam-beta1", &optimizer.adam_beta1, "adam, lamb: decay rate of the first moment.").fraction();
  table.add("adam-beta2", &optimizer.adam_beta2, "adam, lamb: decay rate of the second moment.").fraction();
  table.add("adam-eps", &optimizer.adam_eps, "adam, lamb: added to the root of the second moment.")
      .positive();
  table.add("sgd-momentum", &optimizer.sgd_momentum, "sgd: momentum; 0: none.").fraction();
  table.add("adagrad-eps", &optimizer.adagrad_eps, "adagrad: added to the root of the sum of squares.")
      .positive();
}

}  // namespace trifold
