#include "config/validate_mesh.h"

#include "config/pipeline_choice.h"
#include "config/pipeline_cut.h"

namespace trifold {
namespace {

bool sound_sizes(const Problems& problems) {
  return problems.sound(
      {"ranks", "data-parallel-size", "tensor-model-parallel-size", "pipeline-model-parallel-size"});
}

// Layers, ranks and the two options that say how many stages a rank has.
bool sound_stages(const Problems& problems) {
  return problems.sound({"num-layers", "pipeline-model-parallel-size",
                         "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"});
}

// The options that the number of stages of a rank comes from, for messages.
std::string stages_origin(const PipelineConfig& pipeline, int chunks) {
  if (pipeline.num_virtual_stages_per_pipeline_rank)
    return fmt::format("--num-virtual-stages-per-pipeline-rank {}", chunks);
  if (pipeline.num_layers_per_virtual_pipeline_stage)
    return fmt::format("--num-layers-per-virtual-pipeline-stage {} (that is {} stages a rank)",
                       *pipeline.num_layers_per_virtual_pipeline_stage, chunks);
  return fmt::format("{} stage{} a rank", chunks, chunks == 1 ? "" : "s");
}

// Returns whether the stages of a rank are known.
bool check_stage_options(const PretrainConfig& config, Problems& problems) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto& layers = pipeline.num_layers_per_virtual_pipeline_stage;
  if (layers && pipeline.num_virtual_stages_per_pipeline_rank) {
    problems.add(
        "--num-layers-per-virtual-pipeline-stage {} and --num-virtual-stages-per-pipeline-rank {} exclude "
        "each "
        "other: give one of them",
        *layers, *pipeline.num_virtual_stages_per_pipeline_rank);
    return false;
  }
  const int ranks = config.mesh.pipeline_model_parallel_size;
  if (!layers || stages_per_rank(pipeline, config.model.num_layers, ranks)) return true;
  problems.add(
      "--num-layers {} is not divisible by --pipeline-model-parallel-size {} x "
      "--num-layers-per-virtual-pipeline-stage {} = {}: {}, or give --num-virtual-stages-per-pipeline-rank "
      "N, "
      "which need not divide the layers",
      config.model.num_layers, ranks, *layers, ranks * *layers,
      multiples_around(config.model.num_layers, ranks * *layers));
  return false;
}

void check_enough_layers(const PretrainConfig& config, int chunks, Problems& problems) {
  const int ranks = config.mesh.pipeline_model_parallel_size;
  const int64_t stages = int64_t{ranks} * chunks;
  const int64_t layers = config.model.num_layers;
  if (layers >= stages) return;
  std::string fewer;
  if (chunks > 1 && layers >= ranks)
    fewer = fmt::format(", or at most {} a rank", layers / ranks);
  else if (layers >= chunks)
    fewer = fmt::format(", or --pipeline-model-parallel-size {} or less", layers / chunks);
  problems.add(
      "--num-layers {} is less than the stages, --pipeline-model-parallel-size {} x {} = {}: give at least "
      "{} layers{}",
      layers, ranks, stages_origin(config.pipeline, chunks), stages, stages, fewer);
}

// The options that say which layers a stage has.
void check_cut(const PretrainConfig& config, int chunks, Problems& problems) {
  const StageCutConfig& cut = config.mesh.cut;
  const bool numbers = cut.decoder_first_pipeline_num_layers || cut.decoder_last_pipeline_num_layers;
  if (cut.pipeline_model_parallel_layout &&
      (numbers || cut.pipeline_cut != PipelineCut::Cost || cut.account_for_embedding_in_pipeline_split ||
       cut.account_for_loss_in_pipeline_split)) {
    problems.add(
        "--pipeline-model-parallel-layout says what every stage has: leave out --pipeline-cut, "
        "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers and the two --account-for "
        "options");
    return;
  }
  const auto schedule = chosen_schedule(config.pipeline);
  if (numbers && schedule && needs_two_chunks(*schedule)) {
    problems.add(
        "--schedule {} has the first and the last stage on the same rank: give "
        "--pipeline-model-parallel-layout instead of --decoder-first-pipeline-num-layers and "
        "--decoder-last-pipeline-num-layers",
        schedule_name(*schedule));
    return;
  }
  if (numbers && config.mesh.pipeline_model_parallel_size == 1) {
    problems.add(
        "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers need "
        "--pipeline-model-parallel-size 2 or more");
    return;
  }
  if (!schedule) return;  // the file says how many stages there are
  StageLayers layers =
      stage_layers(cut, config.model.num_layers, config.mesh.pipeline_model_parallel_size, chunks);
  if (!layers.problem.empty()) problems.add("{}", layers.problem);
}

void check_chunks(const PretrainConfig& config, Schedule schedule, int chunks, Problems& problems) {
  const std::string origin = stages_origin(config.pipeline, chunks);
  const std::string_view name = schedule_name(schedule);
  if (needs_two_chunks(schedule) && chunks != 2)
    problems.add(
        "--schedule {} has 2 stages on each rank, not {}: give --num-virtual-stages-per-pipeline-rank 2",
        name, origin);
  else if (!needs_two_chunks(schedule) && schedule != Schedule::Interleaved && chunks != 1)
    problems.add(
        "--schedule {} has one stage on each rank, not {}: leave that out, or give --schedule interleaved{}",
        name, origin, chunks == 2 ? ", zb-v or dualpipe-v" : "");
}

void check_micros(const PretrainConfig& config, Schedule schedule, int chunks, Problems& problems) {
  if (!problems.sound({"micro-batch-size", "global-batch-size"}) || !sound_sizes(problems)) return;
  const int ranks = config.mesh.pipeline_model_parallel_size;
  const int64_t unit = config.batch.micro_batch_size * data_parallel_size(config.mesh);
  const int64_t batch = config.batch.global_batch_size.value_or(unit);
  const int64_t micros = batch / unit;
  const int64_t least = min_micros(schedule, ranks, chunks);
  if (batch % unit != 0 || micros >= least) return;
  problems.add(
      "--schedule {} on {} pipeline ranks needs at least {} micro-batches a step, but --global-batch-size "
      "{}{} / "
      "(--micro-batch-size {} x data parallel size {}) = {}: give --global-batch-size {} or a larger "
      "multiple of "
      "{}, or another schedule",
      schedule_name(schedule), ranks, least, batch, config.batch.global_batch_size ? "" : " (the default)",
      config.batch.micro_batch_size, data_parallel_size(config.mesh), micros, least * unit, unit);
}

void check_interval(const char* name, const std::optional<int64_t>& interval, int64_t window,
                    Problems& problems) {
  if (!interval || !problems.sound({name, "async-window"}) || *interval % window == 0) return;
  problems.add(
      "--{0} {1} is not a multiple of --async-window {2}, after which the pipeline is drained: {3}, or give "
      "--async-window {1}",
      name, *interval, window, multiples_around(*interval, window));
}

void check_asynchronous(const PretrainConfig& config, Schedule schedule, Problems& problems) {
  if (config.optimizer.clip_grad > 0)
    problems.add(
        "--schedule {} needs --clip-grad 0, not {}: each stage updates its weights by itself, when the norm "
        "over all stages is not known",
        schedule_name(schedule), config.optimizer.clip_grad);
  PretrainConfig filled = config;
  filled.pipeline.num_virtual_stages_per_pipeline_rank = 1;
  fill_pipeline(filled);
  if (!filled.pipeline.async_window) return;  // looked at again when the length of the run is known
  const int64_t window = *filled.pipeline.async_window;
  check_interval("eval-interval", config.eval.eval_interval, window, problems);
  check_interval("save-interval", config.checkpoint.save_interval, window, problems);
  check_interval("exit-interval", config.batch.exit_interval, window, problems);
  if (config.checkpoint.check_replicas.value_or(0) > 0)
    check_interval("check-replicas", config.checkpoint.check_replicas, window, problems);
}

}  // namespace

void check_mesh(const MeshConfig& mesh, Problems& problems) {
  const int tensor = mesh.tensor_model_parallel_size;
  const int pipeline = mesh.pipeline_model_parallel_size;
  if (problems.sound({"tensor-model-parallel-size"}) && tensor == 1 && mesh.sequence_parallel)
    problems.add("--sequence-parallel has no effect with --tensor-model-parallel-size 1: leave it out");
  if (!sound_sizes(problems)) return;
  if (mesh.ranks_per_node && problems.sound({"ranks-per-node"}) && mesh.ranks % *mesh.ranks_per_node != 0)
    problems.add("--ranks {} is not a multiple of --ranks-per-node {}: {}", mesh.ranks, *mesh.ranks_per_node,
                 multiples_around(mesh.ranks, *mesh.ranks_per_node));
  const int64_t model_ranks = int64_t{tensor} * pipeline;
  if (!mesh.data_parallel_size && mesh.ranks % model_ranks != 0) {
    problems.add("--ranks {} is not divisible by tensor {} x pipeline {} = {}: {}", mesh.ranks, tensor,
                 pipeline, model_ranks, multiples_around(mesh.ranks, model_ranks));
  } else if (mesh.data_parallel_size && model_ranks == 1 && mesh.ranks != *mesh.data_parallel_size) {
    problems.add("--ranks {0} is not --data-parallel-size {1}: give --ranks {1} or --data-parallel-size {0}",
                 mesh.ranks, *mesh.data_parallel_size);
  } else if (mesh.data_parallel_size) {
    const int64_t all = model_ranks * *mesh.data_parallel_size;  // at most 2^60
    if (mesh.ranks != all)
      problems.add("--ranks {} is not tensor {} x pipeline {} x data {} = {}: give --ranks {}{}", mesh.ranks,
                   tensor, pipeline, *mesh.data_parallel_size, all, all,
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
  const int64_t derived =
      mesh.ranks / (int64_t{mesh.tensor_model_parallel_size} * mesh.pipeline_model_parallel_size);
  return mesh.data_parallel_size ? *mesh.data_parallel_size : std::max<int64_t>(derived, 1);
}

void check_batch(const BatchConfig& batch, const MeshConfig& mesh, Problems& problems) {
  if (!batch.global_batch_size || !problems.sound({"micro-batch-size", "global-batch-size"}) ||
      !sound_sizes(problems))
    return;
  const int64_t data = data_parallel_size(mesh);
  const int64_t unit = batch.micro_batch_size * data;
  if (*batch.global_batch_size % unit != 0)
    problems.add(
        "--global-batch-size {} is not a multiple of --micro-batch-size {} x data parallel size {} = {}: {}",
        *batch.global_batch_size, batch.micro_batch_size, data, unit,
        multiples_around(*batch.global_batch_size, unit));
}

void check_tensor(const PretrainConfig& config, Problems& problems) {
  const int64_t tensor = config.mesh.tensor_model_parallel_size;
  if (!problems.sound({"tensor-model-parallel-size"}) || tensor == 1) return;
  const ModelConfig& model = config.model;
  const auto divisible = [&](const char* name, int64_t value, const char* note) {
    if (problems.sound({name}) && value % tensor != 0)
      problems.add("--{} {}{} is not divisible by --tensor-model-parallel-size {}: {}", name, value, note,
                   tensor, multiples_around(value, tensor));
  };
  divisible("num-attention-heads", model.num_attention_heads, "");
  divisible("hidden-size", model.hidden_size, "");
  const int64_t groups = model.num_query_groups;
  if (model.group_query_attention && problems.sound({"num-query-groups"}) && groups % tensor != 0 &&
      tensor % groups != 0)
    problems.add(
        "--num-query-groups {} and --tensor-model-parallel-size {}: one must divide the other, so that ranks "
        "hold as many groups, or groups are held by as many ranks",
        groups, tensor);
  if (model.ffn_hidden_size)
    divisible("ffn-hidden-size", *model.ffn_hidden_size, "");
  else if (model.swiglu && problems.sound({"hidden-size"}) && model.hidden_size % tensor == 0)
    divisible("ffn-hidden-size", inner_width(model), ", which is what it is by default,");
  const int64_t rows = model.seq_length * config.batch.micro_batch_size;  // at most 2^60
  if (config.mesh.sequence_parallel && problems.sound({"seq-length", "micro-batch-size"}) &&
      rows % tensor != 0)
    problems.add(
        "--sequence-parallel cuts the --seq-length {} x --micro-batch-size {} = {} rows of a micro-batch "
        "over "
        "--tensor-model-parallel-size {}, which does not divide them: give a --seq-length that {} divides",
        model.seq_length, config.batch.micro_batch_size, rows, tensor, tensor);
}

namespace {

void check_reduce_each(const PretrainConfig& config, const std::optional<Schedule>& schedule,
                       Problems& problems) {
  if (problems.sound({"zero-stage"}) && config.zero.zero_stage < 2)
    problems.add(
        "--zero-reduce each with --zero-stage {}: every rank holds all gradients there; give --zero-stage 2 "
        "or "
        "3, or --zero-reduce once",
        config.zero.zero_stage);
  if (schedule && is_async(*schedule))
    problems.add(
        "--zero-reduce each with --schedule {}: schedules that update the weights inside the pipeline reduce "
        "once an update; give --zero-reduce once, or a synchronous schedule such as 1f1b",
        schedule_name(*schedule));
}

// Between groups a slice is cut into as many parts, each of one element at least (DataSums); slices have 256.
constexpr int64_t kMostGroupsInBf16 = 256;
void check_reduce_in_bf16(const PretrainConfig& config, Problems& problems) {
  const int64_t data = data_parallel_size(config.mesh);
  if (data == 1)
    problems.add(
        "--grad-reduce-in-bf16 has no effect with one data-parallel rank, which sends its gradients to "
        "nobody: "
        "leave it out");
  const int64_t group = given_group_size(config.zero).value_or(data);
  if (group > 0 && data / group > kMostGroupsInBf16)
    problems.add(
        "--grad-reduce-in-bf16 with {} groups of --zero-group-size {}: gradients travel in bf16 between at "
        "most "
        "{} groups; give at least --zero-group-size {}",
        data / group, group, kMostGroupsInBf16, (data + kMostGroupsInBf16 - 1) / kMostGroupsInBf16);
}

}  // namespace

void check_graphs(const MeshConfig& mesh, Problems& problems) {
  if (!mesh.enable_cuda_graph) return;
  if (mesh.device != ComputeDevice::Cuda)
    problems.add("--enable-cuda-graph needs --device cuda: a processor has no launches to save");
  if (mesh.tensor_model_parallel_size > 1)
    problems.add(
        "--enable-cuda-graph with --tensor-model-parallel-size {}: blocks with collectives in them are not "
        "captured: leave the option out, or give no tensor ranks",
        mesh.tensor_model_parallel_size);
}

void check_tuning(const MeshConfig& mesh, Problems& problems) {
  if (mesh.tune_products != "off" && mesh.device != ComputeDevice::Cuda)
    problems.add("--tune-products {} needs --device cuda: a processor has one algorithm for each product",
                 mesh.tune_products);
}

void check_determinism(const PretrainConfig& config, Problems& problems) {
  if (!config.mesh.no_deterministic_mode) return;
  if (config.mesh.device != ComputeDevice::Cuda)
    problems.add(
        "--no-deterministic-mode needs --device cuda: on a processor every operation gives the same bits "
        "each time");
  if (config.log.check_overlap > 0)
    problems.add(
        "--no-deterministic-mode with --check-overlap {}: a step that is computed twice has other bits the "
        "second time: leave out one of the two",
        config.log.check_overlap);
}

void check_zero(const PretrainConfig& config, Problems& problems) {
  const std::optional<Schedule> schedule = chosen_schedule(config.pipeline);
  if (config.zero.zero_stage == 3 && schedule && is_async(*schedule))
    problems.add(
        "--zero-stage 3 with --schedule {}: several versions of the weights are in use at once, which must "
        "be "
        "resident: give at most --zero-stage 2",
        schedule_name(*schedule));
  const bool on_device = config.mesh.device == ComputeDevice::Cuda;
  if (config.zero.offloads_to_host() && !on_device)
    problems.add(
        "--offload host has no effect without --device cuda: on a processor the state lies in the memory of "
        "the host already: leave it out, or name a folder on a fast disk");
  if (config.zero.offloads() && !config.zero.offloads_to_host() && on_device)
    problems.add(
        "--offload {} with --device cuda: state in a file is for processors; give --offload host, which "
        "keeps "
        "it in the host's memory",
        config.zero.offload.text());
  if (config.zero.zero_reduce == ReducePolicy::Each) check_reduce_each(config, schedule, problems);
  if (config.precision.grad_reduce_in_bf16 && sound_sizes(problems)) check_reduce_in_bf16(config, problems);
  const std::optional<int> group = given_group_size(config.zero);
  if (!group || !sound_sizes(problems)) return;
  const int64_t data = data_parallel_size(config.mesh);
  if (data % *group != 0)
    problems.add("--zero-group-size {} does not divide the data-parallel size {}", *group, data);
}

void check_pipeline(const PretrainConfig& config, Problems& problems) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto schedule = chosen_schedule(pipeline);  // none: from a file
  const bool asynchronous = schedule && is_async(*schedule);
  if (pipeline.async_window && !asynchronous)
    problems.add("--async-window {} has no effect: it needs --schedule pipedream or pipedream-2bw",
                 *pipeline.async_window);
  if (asynchronous) check_asynchronous(config, *schedule, problems);
  if (config.log.check_overlap > 0 && (asynchronous || !schedule))
    problems.add("--check-overlap {} cannot be used with --schedule {}: {}", config.log.check_overlap,
                 pipeline.schedule->text(),
                 asynchronous ? "its updates are made inside the pipeline and cannot be repeated"
                              : "without overlap, messages in the order of a file may wait for each other");
  if (asynchronous && config.precision.fp16 && !config.precision.loss_scale)
    problems.add(
        "--fp16 with --schedule {} needs a --loss-scale: updates inside the pipeline cannot be skipped (or "
        "give --bf16)",
        pipeline.schedule->text());
  if (!sound_stages(problems) || !check_stage_options(config, problems)) return;
  const int chunks =
      *stages_per_rank(pipeline, config.model.num_layers, config.mesh.pipeline_model_parallel_size);
  if (config.mesh.cut.given())
    check_cut(config, chunks, problems);
  else
    check_enough_layers(config, chunks, problems);
  if (!schedule) return;  // the file is compared with the rest of the configuration when it is read
  check_chunks(config, *schedule, chunks, problems);
  check_micros(config, *schedule, chunks, problems);
}

}  // namespace trifold
