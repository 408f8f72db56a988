#include "config/commands/search_axes.h"

#include <algorithm>

#include "config/commands/commands.h"
#include "config/commands/search_candidates.h"
#include "config/fields/pipeline_choice.h"

namespace trifold {

namespace {

// ---- Options ----

// Sets layers per stage if the options gave them before and that is possible; only one of the two options may be set.
void write_stages(const Layout& layout, PretrainConfig& run) {
  PipelineConfig& pipeline = run.pipeline;
  const int64_t stages = layout[SearchAxis::Stages];
  const int64_t total = stages * layout[SearchAxis::Pipeline];
  auto& layers = pipeline.num_layers_per_virtual_pipeline_stage;
  if (layers && run.model.num_layers % total == 0) {
    layers = run.model.num_layers / total;
    return;
  }
  layers.reset();
  pipeline.num_virtual_stages_per_pipeline_rank = static_cast<int>(stages);
}

int64_t read_stages(const PretrainConfig& run) {
  return stages_per_rank(run.pipeline, run.model.num_layers, run.mesh.pipeline_model_parallel_size)
      .value_or(1);
}

// No schedule is chosen yet.
constexpr int64_t kNoSchedule = -1;

void write_schedule(const Layout& layout, PretrainConfig& run) {
  run.pipeline.schedule.reset();
  if (layout[SearchAxis::Schedule] != kNoSchedule)
    run.pipeline.schedule = static_cast<Schedule>(layout[SearchAxis::Schedule]);
  if (run.pipeline.schedule && run.pipeline.schedule->schedule == Schedule::Auto) return;
  run.pipeline.schedule_max_in_flight.reset();
  run.pipeline.schedule_costs.reset();
}

int64_t read_schedule(const PretrainConfig& run) {
  const auto schedule = chosen_schedule(run.pipeline);
  return schedule ? static_cast<int64_t>(*schedule) : kNoSchedule;
}

// Sharded gradients are reduced after each micro-batch.
void write_zero(const Layout& layout, PretrainConfig& run) {
  run.zero.zero_stage = static_cast<int>(layout[SearchAxis::Zero]);
  run.zero.zero_reduce.reset();
  if (run.zero.zero_stage >= 2) run.zero.zero_reduce = ReducePolicy::Each;
}

void write_tensor(const Layout& layout, PretrainConfig& run) {
  run.mesh.tensor_model_parallel_size = static_cast<int>(layout[SearchAxis::Tensor]);
}

// With one context rank there is no exchange.
void write_context(const Layout& layout, PretrainConfig& run) {
  run.mesh.context_parallel_size = static_cast<int>(layout[SearchAxis::Context]);
  if (run.mesh.context_parallel_size == 1) run.mesh.cp_comm_type.reset();
}

void write_exchange(const Layout& layout, PretrainConfig& run) {
  run.mesh.cp_comm_type.reset();
  if (layout[SearchAxis::Exchange] != kNoExchange)
    run.mesh.cp_comm_type = static_cast<ContextExchange>(layout[SearchAxis::Exchange]);
}

int64_t read_exchange(const PretrainConfig& run) {
  const auto& exchange = run.mesh.cp_comm_type;
  return exchange ? static_cast<int64_t>(*exchange) : kNoExchange;
}

void write_pipeline(const Layout& layout, PretrainConfig& run) {
  run.mesh.pipeline_model_parallel_size = static_cast<int>(layout[SearchAxis::Pipeline]);
}

void write_expert(const Layout& layout, PretrainConfig& run) {
  run.mesh.expert_model_parallel_size = static_cast<int>(layout[SearchAxis::Expert]);
}

void write_expert_tensor(const Layout& layout, PretrainConfig& run) {
  run.mesh.expert_tensor_parallel_size = static_cast<int>(layout[SearchAxis::ExpertTensor]);
}

void write_head_parts(const Layout& layout, PretrainConfig& run) {
  run.mesh.pipeline_vocab_parts = static_cast<int>(layout[SearchAxis::HeadParts]);
}

void write_micro_batch(const Layout& layout, PretrainConfig& run) {
  run.batch.micro_batch_size = layout[SearchAxis::MicroBatch];
}

void write_sequence_parallel(const Layout& layout, PretrainConfig& run) {
  run.mesh.sequence_parallel = layout[SearchAxis::SequenceParallel] != 0;
}

void write_recompute(const Layout& layout, PretrainConfig& run) {
  run.mesh.recompute_granularity = static_cast<RecomputeGranularity>(layout[SearchAxis::Recompute]);
}

const SearchAxisInfo& info_of(SearchAxis axis) { return search_axes()[static_cast<size_t>(axis)]; }

bool has_axis(std::span<const SearchAxis> axes, SearchAxis axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace

std::span<const SearchAxisInfo> search_axes() {
  static const std::vector<SearchAxisInfo> kTable = {
      {SearchAxis::Tensor,
       {"tensor-model-parallel-size"},
       1,
       tensor_candidates,
       write_tensor,
       [](const PretrainConfig& run) { return int64_t{run.mesh.tensor_model_parallel_size}; }},
      {SearchAxis::Context,
       {"context-parallel-size"},
       1,
       context_candidates,
       write_context,
       [](const PretrainConfig& run) { return int64_t{run.mesh.context_parallel_size}; }},
      {SearchAxis::Exchange,
       {"cp-comm-type"},
       kNoExchange,
       exchange_candidates,
       write_exchange,
       read_exchange,
       false,
       "with --device cuda context ranks exchange heads (--cp-comm-type a2a), unless cuDNN computes attention of their "
       "positions: they must divide the query heads of a tensor rank, and divide its key heads or be a multiple of them"},
      {SearchAxis::Pipeline,
       {"pipeline-model-parallel-size"},
       1,
       pipeline_candidates,
       write_pipeline,
       [](const PretrainConfig& run) { return int64_t{run.mesh.pipeline_model_parallel_size}; }},
      {SearchAxis::Expert,
       {"expert-model-parallel-size"},
       1,
       expert_candidates,
       write_expert,
       [](const PretrainConfig& run) { return int64_t{run.mesh.expert_model_parallel_size}; },
       true},
      {SearchAxis::ExpertTensor,
       {"expert-tensor-parallel-size"},
       1,
       expert_tensor_candidates,
       write_expert_tensor,
       [](const PretrainConfig& run) { return int64_t{run.mesh.expert_tensor_parallel_size}; },
       true},
      {SearchAxis::Schedule, {"schedule"}, kNoSchedule, schedule_candidates, write_schedule, read_schedule},
      {SearchAxis::Stages,
       {"num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"},
       1,
       stages_candidates,
       write_stages,
       read_stages},
      {SearchAxis::HeadParts,
       {"pipeline-vocab-parts"},
       1,
       head_parts_candidates,
       write_head_parts,
       [](const PretrainConfig& run) { return int64_t{run.mesh.pipeline_vocab_parts}; },
       true},
      {SearchAxis::MicroBatch,
       {"micro-batch-size"},
       1,
       micro_batch_candidates,
       write_micro_batch,
       [](const PretrainConfig& run) { return run.batch.micro_batch_size; }},
      {SearchAxis::SequenceParallel,
       {"sequence-parallel"},
       0,
       sequence_parallel_candidates,
       write_sequence_parallel,
       [](const PretrainConfig& run) { return int64_t{run.mesh.sequence_parallel}; }},
      {SearchAxis::Zero,
       {"zero-stage", "zero-reduce"},
       0,
       zero_candidates,
       write_zero,
       [](const PretrainConfig& run) { return int64_t{run.zero.zero_stage}; }},
      {SearchAxis::Recompute,
       {"recompute-granularity"},
       0,
       recompute_candidates,
       write_recompute,
       [](const PretrainConfig& run) { return static_cast<int64_t>(run.mesh.recompute_granularity); }}};
  return kTable;
}

std::vector<SearchAxis> all_search_axes() {
  std::vector<SearchAxis> axes;
  for (const SearchAxisInfo& info : search_axes()) axes.push_back(info.axis);
  return axes;
}

std::vector<Schedule> schedules_searched(const PlanConfig& config) {
  if (config.search_schedules.empty() && config.run.mesh.overlap_moe_expert_parallel_comm)
    return {Schedule::DualPipeV};  // the only one with pairs
  if (config.search_schedules.empty())
    return {Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZbH1, Schedule::ZbH2, Schedule::ZbV};
  std::vector<Schedule> schedules;
  for (const ScheduleChoice& choice : config.search_schedules) schedules.push_back(choice.schedule);
  return schedules;
}

std::vector<SearchAxis> axes_searched(const PlanConfig& config) {
  return config.search_over.empty() ? all_search_axes() : config.search_over;
}

void open_axes(PretrainConfig& run, std::span<const SearchAxis> axes) {
  Layout open;
  for (const SearchAxisInfo& info : search_axes())
    open[info.axis] = has_axis(axes, info.axis) ? info.neutral : info.read(run);
  const auto exchange = run.mesh.cp_comm_type;
  write_layout(open, axes, run);
  // The context ranks that will be chosen exchange as their option says.
  if (!has_axis(axes, SearchAxis::Exchange)) run.mesh.cp_comm_type = exchange;
  run.mesh.data_parallel_size.reset();
}

Layout layout_of(const PretrainConfig& run) {
  Layout layout;
  for (const SearchAxisInfo& info : search_axes()) layout[info.axis] = info.read(run);
  return layout;
}

void write_layout(const Layout& layout, std::span<const SearchAxis> axes, PretrainConfig& run) {
  for (const SearchAxis axis : axes) info_of(axis).write(layout, run);
  run.mesh.data_parallel_size = static_cast<int>(run.mesh.ranks / ranks_of_copy(layout));
}

std::vector<std::string> layout_words(const Layout& layout, std::span<const SearchAxis> axes,
                                      PretrainConfig run) {
  const Layout given = layout_of(run);
  write_layout(layout, axes, run);
  const OptionTable table = options_of(run);
  std::vector<std::string> words;
  for (const SearchAxisInfo& info : search_axes()) {
    if (!has_axis(axes, info.axis)) continue;
    if (info.is_rare && layout[info.axis] == info.neutral && given[info.axis] == info.neutral) continue;
    for (const std::string_view name : info.options) {
      const Option& option = *table.find(name);
      const auto values = value_words(option);
      if (!values) continue;
      if (is_flag(option)) {
        words.push_back(values->front() == "true" ? "--" + option.name : "--" + option.name + "=false");
        continue;
      }
      words.push_back("--" + option.name);
      words.insert(words.end(), values->begin(), values->end());
    }
  }
  return words;
}

void check_search(const PretrainConfig& run, std::span<const SearchAxis> axes, std::string_view option,
                  Problems& problems) {
  if (!run.batch.global_batch_size)
    problems.about(option, "global-batch-size")
        .wrong("--{} needs --global-batch-size, because layouts are compared at the same global batch",
               option)
        .right("give both, or neither");
  if (schedule_from_file(run.pipeline))
    problems.about(option, "schedule")
        .wrong("--{} is not possible with --schedule {}, because a file of actions is for one layout", option,
               run.pipeline.schedule->text())
        .right("leave the file out");
  const auto schedule = chosen_schedule(run.pipeline);
  if (schedule && is_async(*schedule) && !has_axis(axes, SearchAxis::Schedule))
    problems.about(option, "schedule")
        .wrong("--{} is not possible with --schedule {}, because asynchronous schedules are not searched",
               option, schedule_name(*schedule))
        .right("give another schedule, or leave it out");
  if (run.mesh.cpu_offloading_num_layers > 0)
    problems.about(option, "cpu-offloading-num-layers")
        .wrong("--{} is not possible with --cpu-offloading-num-layers {}, which the search does not count",
               option, run.mesh.cpu_offloading_num_layers)
        .right("search without it, then add it to the layout that was found");
  const StageCutConfig& cut = run.mesh.cut;
  const bool given = cut.pipeline_model_parallel_layout || cut.decoder_first_pipeline_num_layers ||
                     cut.decoder_last_pipeline_num_layers;
  if (given && (has_axis(axes, SearchAxis::Pipeline) || has_axis(axes, SearchAxis::Stages)))
    problems
        .about(option, "pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers",
               "decoder-last-pipeline-num-layers", "search-over")
        .wrong(
            "--{} chooses pipeline ranks and stages, and --pipeline-model-parallel-layout, "
            "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers "
            "are for one number of them",
            option)
        .right("leave these out, or leave pipeline and stages out of --search-over");
}

}  // namespace trifold
