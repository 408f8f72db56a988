#include "config/subjects/schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "config/fields/batch_sizes.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/bounds.h"
#include "config/subjects/mesh.h"
#include "config/subjects/model_family.h"
#include "config/subjects/pipeline_cut.h"

namespace trifold {

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
      .of_execution()
      .excludes({"clip-grad", kAboveZero},
                "because each stage updates its weights by itself, before the norm over all stages is known",
                "give --clip-grad 0, or a synchronous schedule, such as 1f1b")
      .only_for(kAsynchronousSchedules)
      .excludes("check-overlap", "because updates inside the pipeline cannot be repeated", "leave it out")
      .only_for(kAsynchronousSchedules);
  table
      .add("schedule-max-in-flight", &pipeline.schedule_max_in_flight,
           "--schedule auto: maximum number of micro-batches in flight on a rank.")
      .range(1, 1 << 20)
      .absent("twice the pipeline ranks")
      .of_execution()
      .only_with({"schedule", "auto"})
      .as_note();
  table
      .add("schedule-costs", &pipeline.schedule_costs,
           "--schedule auto: block times, a file written by bench --what blocks --json.")
      .reads("FILE")
      .absent("the blocks' flops")
      .of_execution()
      .only_with({"schedule", "auto"});
  table
      .add("num-layers-per-virtual-pipeline-stage", &pipeline.num_layers_per_virtual_pipeline_stage,
           "Layers per stage if ranks have several stages; times the stages per rank and the pipeline ranks "
           "it must equal --num-layers.")
      .range(1, 1 << 20)
      .absent("set by --num-virtual-stages-per-pipeline-rank")
      .of_execution()
      .excludes("num-virtual-stages-per-pipeline-rank", {}, "give one of them");
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
      .absent("100, or --train-iters if that is less")
      .only_with({"schedule", kAsynchronousSchedules});
  table
      .add("pipeline-cut", &cut.pipeline_cut,
           "How layers are divided among stages: cost minimizes the cost of the slowest stage, "
           "even gives equal numbers.")
      .of_execution()
      .excludes("pipeline-model-parallel-layout", "which already defines every stage", "leave it out");
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
      .of_execution()
      .excludes("pipeline-model-parallel-layout", "which already defines every stage", "leave it out")
      .excludes({"schedule", "zb-v|dualpipe-v"}, "which has the first and the last stage on the same rank",
                "give --pipeline-model-parallel-layout instead")
      .needs({"pipeline-model-parallel-size", AtLeast{2}}, {}, "give more pipeline ranks, or leave it out");
  table
      .add("decoder-last-pipeline-num-layers", &cut.decoder_last_pipeline_num_layers,
           "Layers of the last pipeline rank.")
      .range(0, 1 << 20)
      .absent("set by --pipeline-cut")
      .of_execution()
      .excludes("pipeline-model-parallel-layout", "which already defines every stage", "leave it out")
      .excludes({"schedule", "zb-v|dualpipe-v"}, "which has the first and the last stage on the same rank",
                "give --pipeline-model-parallel-layout instead")
      .needs({"pipeline-model-parallel-size", AtLeast{2}}, {}, "give more pipeline ranks, or leave it out");
  table
      .add("account-for-embedding-in-pipeline-split", &cut.account_for_embedding_in_pipeline_split,
           "Count the embedding as a layer when layers are divided equally.")
      .of_execution()
      .excludes("pipeline-model-parallel-layout", "which already defines every stage", "leave it out");
  table
      .add("account-for-loss-in-pipeline-split", &cut.account_for_loss_in_pipeline_split,
           "Count the output layer with the loss as a layer when layers are divided equally.")
      .of_execution()
      .excludes("pipeline-model-parallel-layout", "which already defines every stage", "leave it out");
  table
      .add(
          "pipeline-vocab-parts", &mesh.pipeline_vocab_parts,
          "Parts over the vocabulary that the output layer and its loss are cut into; stages share them like "
          "layers. In a layout each is an L.")
      .range(1, 4096)
      .of_execution()
      .excludes({"optimizer", "lamb|lars"}, "whose step needs the norm of a whole weight",
                "give another optimizer, or leave it out");
}

namespace {

// Whether layers, ranks and the two options for the number of stages per rank are valid, each taken alone.
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

// Checks the options for stages; returns whether the number of stages per rank is known.
bool check_stage_options(const PretrainConfig& config, Problems& problems) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto& layers = pipeline.num_layers_per_virtual_pipeline_stage;
  if (layers && pipeline.num_virtual_stages_per_pipeline_rank) return false;  // they exclude each other
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
  if (config.model.model && layers == 0) return;  // not known yet
  const int parts = config.mesh.pipeline_vocab_parts;
  const int64_t behind = parts > 1 ? parts : 0;
  const int64_t shared = layers + behind;  // layers and blocks to divide among the stages
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

// Checks the parts of the output layer against the model.
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

// Checks the options that assign layers to stages.
void check_cut(const PretrainConfig& config, int chunks, Problems& problems) {
  const StageCutConfig& cut = config.mesh.cut;
  const bool numbers = cut.decoder_first_pipeline_num_layers || cut.decoder_last_pipeline_num_layers;
  const auto schedule = chosen_schedule(config.pipeline);
  // Reported as rules.
  if (numbers && (cut.pipeline_model_parallel_layout || config.mesh.pipeline_model_parallel_size == 1 ||
                  (schedule && needs_two_chunks(*schedule))))
    return;
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

void check_micros(const PretrainConfig& config, Schedule schedule, int chunks, Problems& problems) {
  if (!problems.sound({"micro-batch-size", "global-batch-size"}) || !sound_sizes(problems)) return;
  const int ranks = config.mesh.pipeline_model_parallel_size;
  const int64_t unit = config.batch.micro_batch_size * data_parallel_size(config.mesh);
  const std::optional<BatchRamp> ramp = ramp_of(config.batch);
  const int64_t batch = ramp ? ramp->start : config.batch.global_batch_size.value_or(unit);
  const int64_t micros = batch / unit;
  const int64_t least = min_micros(schedule, ranks, chunks);
  if (batch % unit != 0 || micros >= least) return;
  if (ramp) {
    problems
        .about("rampup-batch-size", "schedule", "micro-batch-size", "pipeline-model-parallel-size", "ranks")
        .wrong(
            "--schedule {} on {} pipeline ranks needs at least {} micro-batches a step, but the first batch of "
            "--rampup-batch-size, {} / (--micro-batch-size {} x data parallel size {}), has {}",
            schedule_name(schedule), ranks, least, batch, config.batch.micro_batch_size,
            data_parallel_size(config.mesh), micros)
        .right("start with at least {}, or give another schedule", least * unit);
    return;
  }
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

void check_asynchronous(const PretrainConfig& config, Problems& problems) {
  PretrainConfig filled = config;
  filled.pipeline.num_virtual_stages_per_pipeline_rank = 1;
  fill_pipeline(filled);
  if (!filled.pipeline.async_window) return;  // checked again once the length of the run is known
  const int64_t window = *filled.pipeline.async_window;
  // Without evaluations or checkpoints their intervals have no effect.
  if (config.eval.eval_iters > 0)
    check_interval("eval-interval", config.eval.eval_interval, window, problems);
  if (config.checkpoint.save)
    check_interval("save-interval", config.checkpoint.save_interval, window, problems);
  check_interval("exit-interval", config.batch.exit_interval, window, problems);
  if (config.checkpoint.check_replicas.value_or(0) > 0)
    check_interval("check-replicas", config.checkpoint.check_replicas, window, problems);
}

// Numbers that need all gradients, or all weights, of one step at one time.
void check_numbers_of_a_step(const LogConfig& log, Schedule schedule, Problems& problems) {
  const std::pair<const char*, bool> numbers[] = {{"log-block-grad-norms", log.log_block_grad_norms},
                                                  {"log-params-norm", log.log_params_norm},
                                                  {"log-num-zeros-in-grad", log.log_num_zeros_in_grad}};
  for (const auto& [name, asked] : numbers)
    if (asked)
      problems.about(name, "schedule")
          .wrong("--{} is not possible with --schedule {}, whose stages update at different times", name,
                 schedule_name(schedule))
          .right("leave it out, or give a synchronous schedule");
}

}  // namespace

void check_pipeline(const PretrainConfig& config, Problems& problems) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto schedule = chosen_schedule(pipeline);  // none: from a file
  const bool asynchronous = schedule && is_async(*schedule);
  if (asynchronous) check_asynchronous(config, problems);
  if (asynchronous) check_numbers_of_a_step(config.log, *schedule, problems);
  if (config.log.check_overlap > 0 && !schedule)
    problems.about("check-overlap", "schedule")
        .wrong(
            "--check-overlap {} is not possible with --schedule {}, because without overlap, messages in the order of "
            "a file may wait for each other",
            config.log.check_overlap, pipeline.schedule->text())
        .right("leave it out");
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
