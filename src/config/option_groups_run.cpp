// How it is trained, and where.
#include "config/option_groups.h"

#include "config/pipeline_choice.h"

namespace trifold {

void add_ranks(OptionTable& table, MeshConfig& mesh) {
  table.add("ranks", &mesh.ranks, "Ranks as threads of this process; under mpirun, the number of processes.")
      .range(1, kMaxRanks)
      .of_execution();
}

void add_host(OptionTable& table, MeshConfig& mesh) {
  table.add("threads-per-rank", &mesh.threads_per_rank, "Threads of each rank for arithmetic.")
      .range(1, 1 << 16)
      .absent("the cores of the host, divided among its ranks")
      .of_host()
      .of_execution();
  table.add("device", &mesh.device, "Where arithmetic runs; auto is the processor.").of_execution();
  table
      .add("distributed-timeout-minutes", &mesh.distributed_timeout_minutes,
           "Minutes that a rank waits for another before it gives up, 6 times as long while the disk writes "
           "a checkpoint; time for which the whole run was stopped does not count.")
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
           "Ranks in a row, each with its share of the layers.")
      .range(1, kMaxRanks)
      .also("pp")
      .of_execution();
  table
      .add("sequence-parallel", &mesh.sequence_parallel,
           "Shard by rows of the sequence what tensor ranks would otherwise replicate; needs --tp.")
      .of_execution();
  table
      .add("data-parallel-size", &mesh.data_parallel_size,
           "Copies of the model, each on its share of a batch.")
      .range(1, kMaxRanks)
      .absent("ranks / (tensor x pipeline)")
      .also("dp")
      .of_execution();
  table
      .add("ranks-per-node", &mesh.ranks_per_node,
           "Ranks that share a node, in order: for counting bytes between nodes, and for "
           "--zero-group-size node.")
      .range(1, kMaxRanks)
      .absent("host names tell; one node for a plan")
      .of_execution();
  add_host(table, mesh);
}

void add_device_choices(OptionTable& table, MeshConfig& mesh) {
  table.add("enable-cuda-graph", &mesh.enable_cuda_graph,
            "Capture what each block launches in its second step, and launch it as one from then on; "
            "--device cuda, no tensor ranks.");
  table
      .add(
          "tune-products", &mesh.tune_products,
          "Measure the algorithms that cuBLASLt proposes for each matrix product before the first step, take "
          "the fastest, and keep them in this file for later runs, which have the same bits with it; off: "
          "the first proposal; --device cuda.")
      .files("FILE|off")
      .suggest({"off"});
  table.add(
      "no-deterministic-mode", &mesh.no_deterministic_mode,
      "Let 16-bit attention add up the gradients of queries in any order: backward is faster and needs "
      "less memory, but no two runs have the same bits, nor has a resumed run those of one that was not "
      "stopped; --device cuda.");
}

Option& add_zero_stage(OptionTable& table, ZeroConfig& zero) {
  return table
      .add("zero-stage", &zero.zero_stage,
           "State that data-parallel ranks shard: 1 the optimizer state, 2 also gradients, 3 also the "
           "weights; 0 nothing.")
      .range(0, 3)
      .of_execution();
}

void add_zero(OptionTable& table, ZeroConfig& zero) {
  table.group("ZeRO");
  add_zero_stage(table, zero);
  table
      .add("zero-min-unit-params", &zero.zero_min_unit_params,
           "Least parameters of a unit, which is what is reduced, published and gathered at once.")
      .range(1, int64_t{1} << 40)
      .absent("4194304")
      .of_execution();
  table
      .add("zero-group-size", &zero.zero_group_size,
           "Data-parallel ranks that share: a number, or those of a node; ranks of other groups hold the "
           "same, "
           "and only slices of gradients travel between groups.")
      .takes("N|node")
      .suggest({"node"})
      .absent("all data-parallel ranks")
      .of_execution();
  table
      .add("offload", &zero.offload,
           "Folder on a fast disk where the optimizer state lies, and with --zero-stage 3 the slices of the "
           "weights: a mapped file a rank, of which only what is being used is in memory. host: with "
           "--device cuda, the optimizer state in "
           "the host's memory. none: in memory.")
      .of_host()
      .of_execution();
  table
      .add(
          "zero-reduce", &zero.zero_reduce,
          "When gradients are summed over data-parallel ranks: once a step, or after each micro-batch, which "
          "sends more and holds less; needs --zero-stage 2.")
      .absent("each where the stage is 2 or 3 and a step has one micro-batch, else once")
      .of_execution();
}

void add_pipeline(OptionTable& table, PipelineConfig& pipeline, StageCutConfig& cut) {
  table.group("Pipeline");
  table
      .add("schedule", &pipeline.schedule,
           fmt::format("Order of the micro-batches: {}; or a file of actions, one row a rank.",
                       fmt::join(known_schedules(), ", ")))
      .files("NAME|FILE.csv")
      .suggest(known_schedules())
      .absent("1f1b; interleaved where a rank has several stages")
      .of_execution();
  table
      .add("schedule-max-in-flight", &pipeline.schedule_max_in_flight,
           "Micro-batches whose activations a rank may keep at once with --schedule auto.")
      .range(1, 1 << 20)
      .absent("twice the pipeline ranks")
      .of_execution();
  table
      .add("schedule-costs", &pipeline.schedule_costs,
           "File of bench --what blocks --json with the times that --schedule auto is made for.")
      .files("FILE")
      .absent("the blocks' flops")
      .of_execution();
  table
      .add(
          "num-layers-per-virtual-pipeline-stage", &pipeline.num_layers_per_virtual_pipeline_stage,
          "Layers of a stage where a rank has several: so many that this, the stages of a rank and the ranks "
          "multiply to --num-layers.")
      .range(1, 1 << 20)
      .absent("--num-virtual-stages-per-pipeline-rank counts")
      .of_execution();
  table
      .add("num-virtual-stages-per-pipeline-rank", &pipeline.num_virtual_stages_per_pipeline_rank,
           "Stages of each rank.")
      .range(1, 1 << 20)
      .absent("1; 2 for interleaved, zb-v and dualpipe-v")
      .of_execution();
  table
      .add("async-window", &pipeline.async_window,
           "Global batches between two drains of the pipeline, for pipedream and pipedream-2bw.")
      .range(1, kMaxCount)
      .absent("100, or --train-iters where that is less");
  table
      .add("pipeline-cut", &cut.pipeline_cut,
           "How layers are divided among stages: so that the costliest is cheapest, or in equal numbers.")
      .of_execution();
  table
      .add("pipeline-model-parallel-layout", &cut.pipeline_model_parallel_layout,
           "The blocks of every stage: E embedding, t a layer, L loss, | between stages, (...)*N repeated, "
           "such as \"Et|(tt|)*6t|L\".")
      .takes("LAYOUT")
      .absent("--pipeline-cut counts")
      .of_execution();
  table
      .add("decoder-first-pipeline-num-layers", &cut.decoder_first_pipeline_num_layers,
           "Layers of the first pipeline rank; those without a number of their own get equal numbers.")
      .range(0, 1 << 20)
      .absent("--pipeline-cut counts")
      .of_execution();
  table
      .add("decoder-last-pipeline-num-layers", &cut.decoder_last_pipeline_num_layers,
           "Layers of the last pipeline rank.")
      .range(0, 1 << 20)
      .absent("--pipeline-cut counts")
      .of_execution();
  table
      .add("account-for-embedding-in-pipeline-split", &cut.account_for_embedding_in_pipeline_split,
           "Divide layers in equal numbers, the embedding counting as one.")
      .of_execution();
  table
      .add("account-for-loss-in-pipeline-split", &cut.account_for_loss_in_pipeline_split,
           "Divide layers in equal numbers, the head with its loss counting as one.")
      .of_execution();
}

void add_recompute(OptionTable& table, MeshConfig& mesh) {
  table.group("Memory");
  table
      .add(
          "recompute-granularity", &mesh.recompute_granularity,
          "What backward computes again instead of keeping it: attention (selective) or whole layers (full).")
      .of_execution();
}

void add_memory_limit(OptionTable& table, MeshConfig& mesh) {
  table
      .add("memory-limit", &mesh.memory_limit,
           "GiB a rank may use; a plan that needs more is refused, with what would fit.")
      .positive()
      .absent("ranks together may use the memory of their host, or of the device they share")
      .of_host();
}

void add_batch(OptionTable& table, BatchConfig& batch) {
  table.group("Batch");
  table.add("micro-batch-size", &batch.micro_batch_size, "Sequences that one rank computes at once.")
      .need()
      .range(1, kMaxSize)
      .of_execution();
  table.add("global-batch-size", &batch.global_batch_size, "Sequences of one step over all ranks.")
      .range(1, kMaxSize)
      .absent("--micro-batch-size x data parallel size");
}

void add_exit(OptionTable& table, std::optional<int64_t>& interval, std::optional<double>& minutes) {
  table.add("exit-interval", &interval, "Stop, with a checkpoint, after a step divisible by this.")
      .range(1, kMaxCount)
      .absent("train to the end")
      .of_execution();
  table
      .add("exit-duration-in-mins", &minutes,
           "Stop, with a checkpoint, after the first step that ends more than so many minutes after the "
           "start.")
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
           "Passes over the training part, instead of --train-iters: each sample exactly once in each; the "
           "last global batch has what is left.")
      .range(1, kMaxCount)
      .absent("--train-iters counts");
  add_exit(table, batch.exit_interval, batch.exit_duration_in_mins);
  table.add("seed", &seed, "Seed of initial weights, order of the data and dropout.");
}

void add_lr(OptionTable& table, LrConfig& lr) {
  table.group("Learning rate");
  table.add("lr", &lr.lr, "Learning rate after warm-up.").need().positive();
  table.add("min-lr", &lr.min_lr, "Learning rate after decay.").at_least(0);
  table.add("lr-decay-style", &lr.lr_decay_style, "How the rate falls after warm-up.");
  table.add("lr-decay-power", &lr.lr_decay_power, "polynomial: power of the share of the decay that is left.")
      .positive();
  table
      .add("lr-decay-start", &lr.lr_decay_start,
           "parabola: step, counted from 1, from which the rate falls by the square of what is left; 0: "
           "never.")
      .range(0, kMaxCount);
  table
      .add("lr-decay-iters", &lr.lr_decay_iters,
           "Step at which decay ends; of a parabola the steps of its fall.")
      .range(1, kMaxCount)
      .absent("--train-iters");
  table.add("lr-warmup-iters", &lr.lr_warmup_iters, "Steps of linear warm-up.").range(0, kMaxCount);
  table
      .add("lr-warmup-fraction", &lr.lr_warmup_fraction,
           "Warm-up as a fraction of --lr-decay-iters; instead of --lr-warmup-iters.")
      .fraction()
      .absent("--lr-warmup-iters counts");
  table.add("lr-warmup-init", &lr.lr_warmup_init, "Learning rate that warm-up starts from.").at_least(0);
  table.add("lr-wsd-decay-style", &lr.lr_wsd_decay_style, "How the rate falls at the end of WSD.");
  table
      .add("lr-wsd-decay-iters", &lr.lr_wsd_decay_iters, "Steps of the fall at the end of WSD; WSD needs it.")
      .range(1, kMaxCount)
      .absent("no WSD");
}

void add_optimizer(OptionTable& table, OptimizerConfig& optimizer) {
  table.group("Optimizer");
  table.add("optimizer", &optimizer.optimizer, "Update rule; adam decouples weight decay (AdamW).");
  table.add("weight-decay", &optimizer.weight_decay, "Not applied to biases and one-dimensional tensors.")
      .at_least(0);
  table.add("clip-grad", &optimizer.clip_grad, "Largest norm of the gradient; 0 switches clipping off.")
      .at_least(0);
  table.add("adam-beta1", &optimizer.adam_beta1, "Decay of the first moment; adam and lamb.").fraction();
  table.add("adam-beta2", &optimizer.adam_beta2, "Decay of the second moment; adam and lamb.").fraction();
  table.add("adam-eps", &optimizer.adam_eps, "Added to the root of the second moment; adam and lamb.")
      .positive();
  table.add("sgd-momentum", &optimizer.sgd_momentum, "Decay of the sum of gradients; sgd. 0: no momentum.")
      .fraction();
  table.add("adagrad-eps", &optimizer.adagrad_eps, "Added to the root of the sum of squares; adagrad.")
      .positive();
}

void add_saving(OptionTable& table, CheckpointConfig& checkpoint) {
  table.group("Checkpoint");
  table.add("save", &checkpoint.save, "Folder to save checkpoints in; it holds those of one run.")
      .files("DIR")
      .absent("nothing is saved")
      .of_execution();
  table.add("save-interval", &checkpoint.save_interval, "Save every so many steps, and at the end.")
      .range(1, kMaxCount)
      .absent("only at the end")
      .of_execution();
  table.add("load", &checkpoint.load, "Folder to go on from; it must exist. May be that of --save.")
      .files("DIR")
      .absent("start from random weights")
      .of_execution();
  table
      .add(
          "auto-resume", &checkpoint.auto_resume,
          "Go on from the newest usable checkpoint in the folder of --save; --load counts where it has none.")
      .of_execution();
  table
      .add("allow-changed-data", &checkpoint.allow_changed_data,
           "Go on although the training data differ from those of the checkpoint in size or content.")
      .of_execution();
  table.add("async-save", &checkpoint.async_save, "Copy the state, and write it while training goes on.")
      .of_execution();
  table
      .add("save-retain", &checkpoint.save_retain, "Remove all but this many of the newest good checkpoints.")
      .range(2, 1 << 20)
      .absent("all stay")
      .of_execution();
  table
      .add("on-save-error", &checkpoint.on_save_error,
           "What a checkpoint that cannot be saved means for the run; the last one must be saved.")
      .of_execution();
  table
      .add("check-replicas", &checkpoint.check_replicas,
           "Compare the copies of weights and optimizer state that ranks hold every so many steps and "
           "before each save, and end the run where copies differ; 0: never.")
      .range(0, kMaxCount)
      .absent("before each save")
      .of_execution();
}

void add_checkpoint(OptionTable& table, CheckpointConfig& checkpoint) {
  add_saving(table, checkpoint);
  table
      .add("finetune", &checkpoint.finetune,
           "Take only the weights of --load: steps, data and optimizer start anew.")
      .of_execution();
}

void add_eval(OptionTable& table, EvalConfig& eval) {
  table.group("Evaluation");
  table.add("eval-interval", &eval.eval_interval, "Evaluate every so many steps.")
      .range(1, kMaxCount)
      .absent("no evaluation while training");
  table
      .add("eval-iters", &eval.eval_iters,
           "Batches of one evaluation, always the same; at most the whole validation part, once. 0: no "
           "evaluation.")
      .range(0, kMaxCount);
}

void add_reports(OptionTable& table, LogConfig& log) {
  table.group("Logging");
  table.add("log-interval", &log.log_interval, "Report progress every so many steps.")
      .range(1, kMaxCount)
      .of_execution();
  table.add("log-json", &log.log_json, "Append one JSON object a step to this file.")
      .files("FILE")
      .absent("none")
      .of_host()
      .of_execution();
}

void add_log(OptionTable& table, LogConfig& log) {
  add_reports(table, log);
  table
      .add("check-overlap", &log.check_overlap,
           "Compute the first so many steps twice, once with nothing at the same time; end if a bit differs.")
      .range(0, kMaxCount);
}

void add_seed(OptionTable& table, uint64_t& seed, std::string help) {
  table.add("seed", &seed, std::move(help));
}

}  // namespace trifold
