// Checks of the pipeline: schedule, stages, the cut of the layers, micro-batches and asynchronous updates.
#include <algorithm>
#include <numeric>
#include <utility>

#include "config/fields/pipeline_choice.h"
#include "config/subjects/model_family.h"
#include "config/subjects/pipeline_cut.h"
#include "config/subjects/validate_mesh.h"

namespace trifold {
namespace {

// Layers, ranks and the two options for the number of stages per rank are valid by themselves.
bool sound_stages(const Problems& problems) {
  return problems.sound({"num-layers", "pipeline-model-parallel-size",
                         "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"});
}

// The options that determine the number of stages per rank, for messages.
std::string stages_origin(const PipelineConfig& pipeline, int chunks) {
  if (pipeline.num_virtual_stages_per_pipeline_rank)
    return fmt::format("--num-virtual-stages-per-pipeline-rank {}", chunks);
  if (pipeline.num_layers_per_virtual_pipeline_stage)
    return fmt::format("--num-layers-per-virtual-pipeline-stage {} (that is {} stages a rank)",
                       *pipeline.num_layers_per_virtual_pipeline_stage, chunks);
  return fmt::format("{} stage{} a rank", chunks, chunks == 1 ? "" : "s");
}

// Returns whether the number of stages per rank is known.
bool check_stage_options(const PretrainConfig& config, Problems& problems) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto& layers = pipeline.num_layers_per_virtual_pipeline_stage;
  if (layers && pipeline.num_virtual_stages_per_pipeline_rank) {
    problems.about("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank")
        .wrong(
            "--num-layers-per-virtual-pipeline-stage {} and --num-virtual-stages-per-pipeline-rank {} "
            "exclude each other",
            *layers, *pipeline.num_virtual_stages_per_pipeline_rank)
        .right("give one of them");
    return false;
  }
  const int ranks = config.mesh.pipeline_model_parallel_size;
  if (!layers || stages_per_rank(pipeline, config.model.num_layers, ranks)) return true;
  problems
      .about("num-layers", "pipeline-model-parallel-size", "num-layers-per-virtual-pipeline-stage",
             "num-virtual-stages-per-pipeline-rank")
      .wrong(
          "--num-layers {} is not divisible by --pipeline-model-parallel-size {} x "
          "--num-layers-per-virtual-pipeline-stage {} = {}",
          config.model.num_layers, ranks, *layers, ranks * *layers)
      .right("{}, or give --num-virtual-stages-per-pipeline-rank N, which need not divide the layers",
             multiples_around(config.model.num_layers, ranks * *layers));
  return false;
}

void check_enough_layers(const PretrainConfig& config, int chunks, Problems& problems) {
  const int ranks = config.mesh.pipeline_model_parallel_size;
  const int64_t stages = int64_t{ranks} * chunks;
  const int64_t layers = config.model.num_layers;
  const int parts = config.mesh.pipeline_vocab_parts;
  const int64_t behind = parts > 1 ? parts : 0;
  const int64_t shared = layers + behind;  // by the stages
  if (shared >= stages) return;
  std::string fewer;
  if (chunks > 1 && shared >= ranks)
    fewer = fmt::format(", or at most {} a rank", shared / ranks);
  else if (shared >= chunks)
    fewer = fmt::format(", or --pipeline-model-parallel-size {} or less", shared / chunks);
  problems
      .about("num-layers", "pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank",
             "num-layers-per-virtual-pipeline-stage", "pipeline-vocab-parts")
      .wrong("--num-layers {}{} less than the stages, --pipeline-model-parallel-size {} x {} = {}", layers,
             behind > 0 ? fmt::format(" and --pipeline-vocab-parts {} are together", parts) : " is", ranks,
             stages_origin(config.pipeline, chunks), stages)
      .right("give at least {} layers{}", std::max<int64_t>(1, stages - behind), fewer);
}

// The parts of the output layer against the model.
void check_vocab_parts(const PretrainConfig& config, Problems& problems) {
  constexpr const char* kOption = "pipeline-vocab-parts";
  const int parts = config.mesh.pipeline_vocab_parts;
  if (!problems.sound({kOption}) || parts == 1) return;
  if (!family_of_model(config.model).cuts_head) {
    problems.about(kOption, "model-type")
        .wrong("--{} {} is not possible with this --model-type, whose output layer is not cut", kOption,
               parts)
        .right("leave it out");
    return;
  }
  if (config.optimizer.optimizer == OptimizerKind::Lamb)
    problems.about(kOption, "optimizer")
        .wrong("--{} {} is not possible with --optimizer lamb, whose step needs the norm of a whole weight",
               kOption, parts)
        .right("give another optimizer, or leave it out");
  const std::optional<int64_t>& vocab = config.model.vocab_size;
  if (!vocab || !sound_sizes(problems) || !problems.sound({"vocab-size", "make-vocab-size-divisible-by"}))
    return;
  const int tensor = config.mesh.tensor_model_parallel_size;
  const int64_t unit = config.model.make_vocab_size_divisible_by * tensor;
  const int64_t padded = (*vocab + unit - 1) / unit * unit;
  if (padded % (int64_t{parts} * tensor) != 0)
    problems.about(kOption, "vocab-size", "make-vocab-size-divisible-by", "tensor-model-parallel-size")
        .wrong("--{} {} x --tensor-model-parallel-size {} does not divide the padded vocabulary of {} tokens",
               kOption, parts, tensor, padded)
        .right("give another number, or --make-vocab-size-divisible-by {}",
               std::lcm(config.model.make_vocab_size_divisible_by, int64_t{parts}));
}

// The options that assign layers to stages.
void check_cut(const PretrainConfig& config, int chunks, Problems& problems) {
  const StageCutConfig& cut = config.mesh.cut;
  const bool numbers = cut.decoder_first_pipeline_num_layers || cut.decoder_last_pipeline_num_layers;
  if (cut.pipeline_model_parallel_layout &&
      (numbers || cut.pipeline_cut != PipelineCut::Cost || cut.account_for_embedding_in_pipeline_split ||
       cut.account_for_loss_in_pipeline_split)) {
    problems
        .about("pipeline-model-parallel-layout", "pipeline-cut", "decoder-first-pipeline-num-layers",
               "decoder-last-pipeline-num-layers", "account-for-embedding-in-pipeline-split",
               "account-for-loss-in-pipeline-split")
        .wrong("--pipeline-model-parallel-layout already defines every stage")
        .right(
            "leave out --pipeline-cut, --decoder-first-pipeline-num-layers, "
            "--decoder-last-pipeline-num-layers and the two --account-for options");
    return;
  }
  const auto schedule = chosen_schedule(config.pipeline);
  if (numbers && schedule && needs_two_chunks(*schedule)) {
    problems
        .about("schedule", "pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers",
               "decoder-last-pipeline-num-layers")
        .wrong("--schedule {} has the first and the last stage on the same rank", schedule_name(*schedule))
        .right(
            "give --pipeline-model-parallel-layout instead of --decoder-first-pipeline-num-layers and "
            "--decoder-last-pipeline-num-layers");
    return;
  }
  if (numbers && config.mesh.pipeline_model_parallel_size == 1) {
    problems
        .about("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers",
               "pipeline-model-parallel-size")
        .wrong(
            "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers need "
            "--pipeline-model-parallel-size 2 or more")
        .right("give more pipeline ranks, or leave these out");
    return;
  }
  if (!schedule) return;  // the file says how many stages there are
  StageLayers layers = stage_layers(cut, config.model.num_layers, config.mesh.pipeline_vocab_parts,
                                    config.mesh.pipeline_model_parallel_size, chunks);
  if (layers.problem) problems.add(std::move(*layers.problem));
}

void check_chunks(const PretrainConfig& config, Schedule schedule, int chunks, Problems& problems) {
  const std::string origin = stages_origin(config.pipeline, chunks);
  const std::string_view name = schedule_name(schedule);
  if (needs_two_chunks(schedule) && chunks != 2)
    problems
        .about("schedule", "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage")
        .wrong("--schedule {} has 2 stages on each rank, not {}", name, origin)
        .right("give --num-virtual-stages-per-pipeline-rank 2");
  else if (!needs_two_chunks(schedule) && !takes_any_chunks(schedule) && chunks != 1)
    problems
        .about("schedule", "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage")
        .wrong("--schedule {} has one stage on each rank, not {}", name, origin)
        .right("leave it out, or give --schedule {}",
               chunks == 2 ? "interleaved, zb-v, dualpipe-v or auto" : "interleaved or auto");
}

void refuse_automatic(const PipelineConfig& pipeline, Problems& problems) {
  constexpr const char* kNeeds = "it needs --schedule auto";
  if (pipeline.schedule_max_in_flight)
    problems.about("schedule-max-in-flight", "schedule")
        .wrong("--schedule-max-in-flight {} has no effect", *pipeline.schedule_max_in_flight)
        .right(kNeeds);
  if (pipeline.schedule_costs)
    problems.about("schedule-costs", "schedule")
        .wrong("--schedule-costs {} has no effect", *pipeline.schedule_costs)
        .right(kNeeds);
}

void check_micros(const PretrainConfig& config, Schedule schedule, int chunks, Problems& problems) {
  if (!problems.sound({"micro-batch-size", "global-batch-size"}) || !sound_sizes(problems)) return;
  const int ranks = config.mesh.pipeline_model_parallel_size;
  const int64_t unit = config.batch.micro_batch_size * data_parallel_size(config.mesh);
  const int64_t batch = config.batch.global_batch_size.value_or(unit);
  const int64_t micros = batch / unit;
  const int64_t least = min_micros(schedule, ranks, chunks);
  if (batch % unit != 0 || micros >= least) return;
  problems
      .about("schedule", "global-batch-size", "micro-batch-size", "pipeline-model-parallel-size", "ranks",
             "data-parallel-size")
      .wrong(
          "--schedule {} on {} pipeline ranks needs at least {} micro-batches a step, but "
          "--global-batch-size {}{} / (--micro-batch-size {} x data parallel size {}) = {}",
          schedule_name(schedule), ranks, least, batch,
          config.batch.global_batch_size ? "" : " (the default)", config.batch.micro_batch_size,
          data_parallel_size(config.mesh), micros)
      .right("give --global-batch-size {} or a larger multiple of {}, or another schedule", least * unit,
             unit);
}

void check_interval(const char* name, const std::optional<int64_t>& interval, int64_t window,
                    Problems& problems) {
  if (!interval || !problems.sound({name, "async-window"}) || *interval % window == 0) return;
  problems.about(name, "async-window")
      .wrong("--{} {} is not a multiple of --async-window {}, after which the pipeline drains", name,
             *interval, window)
      .right("{}, or give --async-window {}", multiples_around(*interval, window), *interval);
}

void check_asynchronous(const PretrainConfig& config, Schedule schedule, Problems& problems) {
  if (config.optimizer.clip_grad > 0)
    problems.about("schedule", "clip-grad")
        .wrong(
            "--schedule {} needs --clip-grad 0, not {}, because each stage updates its weights by itself, "
            "before the norm over all stages is known",
            schedule_name(schedule), config.optimizer.clip_grad)
        .right("give --clip-grad 0, or a synchronous schedule, such as 1f1b");
  PretrainConfig filled = config;
  filled.pipeline.num_virtual_stages_per_pipeline_rank = 1;
  fill_pipeline(filled);
  if (!filled.pipeline.async_window) return;  // checked again once the length of the run is known
  const int64_t window = *filled.pipeline.async_window;
  check_interval("eval-interval", config.eval.eval_interval, window, problems);
  check_interval("save-interval", config.checkpoint.save_interval, window, problems);
  check_interval("exit-interval", config.batch.exit_interval, window, problems);
  if (config.checkpoint.check_replicas.value_or(0) > 0)
    check_interval("check-replicas", config.checkpoint.check_replicas, window, problems);
}

}  // namespace

void check_pipeline(const PretrainConfig& config, Problems& problems) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto schedule = chosen_schedule(pipeline);  // none: from a file
  const bool asynchronous = schedule && is_async(*schedule);
  if (pipeline.async_window && !asynchronous)
    problems.about("async-window", "schedule")
        .wrong("--async-window {} has no effect", *pipeline.async_window)
        .right("it needs --schedule pipedream or pipedream-2bw");
  if (schedule != Schedule::Auto) refuse_automatic(pipeline, problems);
  if (asynchronous) check_asynchronous(config, *schedule, problems);
  if (config.log.check_overlap > 0 && (asynchronous || !schedule))
    problems.about("check-overlap", "schedule")
        .wrong("--check-overlap {} cannot be used with --schedule {}, because {}", config.log.check_overlap,
               pipeline.schedule->text(),
               asynchronous ? "its updates happen inside the pipeline and cannot be repeated"
                            : "without overlap, messages in the order of a file may wait for each other")
        .right("leave it out");
  if (asynchronous && config.precision.fp16 && !config.precision.loss_scale)
    problems.about("fp16", "schedule", "loss-scale", "bf16")
        .wrong(
            "--fp16 with --schedule {} needs a --loss-scale, "
            "because updates inside the pipeline cannot be skipped",
            pipeline.schedule->text())
        .right("give one, or --bf16 instead");
  check_vocab_parts(config, problems);
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
