#include "config/fields/pipeline_choice.h"

#include <algorithm>

namespace trifold {
namespace {

constexpr int64_t kDefaultWindow = 100;

}  // namespace

std::vector<std::string> known_schedules() { return {schedule_names().begin(), schedule_names().end()}; }

bool schedule_from_file(const PipelineConfig& pipeline) {
  return pipeline.schedule && pipeline.schedule->from_file();
}

std::optional<Schedule> chosen_schedule(const PipelineConfig& pipeline) {
  if (schedule_from_file(pipeline)) return std::nullopt;
  if (pipeline.schedule) return pipeline.schedule->schedule;
  const bool several = pipeline.num_layers_per_virtual_pipeline_stage.has_value() ||
                       pipeline.num_virtual_stages_per_pipeline_rank.value_or(1) > 1;
  return several ? Schedule::Interleaved : Schedule::OneFOneB;
}

std::optional<int> stages_per_rank(const PipelineConfig& pipeline, int64_t num_layers, int pipeline_ranks) {
  if (pipeline.num_virtual_stages_per_pipeline_rank) return *pipeline.num_virtual_stages_per_pipeline_rank;
  if (pipeline.num_layers_per_virtual_pipeline_stage) {
    const int64_t unit = *pipeline.num_layers_per_virtual_pipeline_stage * pipeline_ranks;
    if (num_layers < unit || num_layers % unit != 0) return std::nullopt;
    return static_cast<int>(num_layers / unit);
  }
  const auto schedule = chosen_schedule(pipeline);
  const bool two = schedule && (needs_two_chunks(*schedule) || *schedule == Schedule::Interleaved);
  return two ? 2 : 1;
}

void fill_pipeline(PretrainConfig& config) {
  PipelineConfig& pipeline = config.pipeline;
  if (schedule_from_file(pipeline)) return;
  const Schedule schedule = *chosen_schedule(pipeline);
  if (!pipeline.num_layers_per_virtual_pipeline_stage)  // a configuration may have only one of the two
    pipeline.num_virtual_stages_per_pipeline_rank =
        stages_per_rank(pipeline, config.model.num_layers, config.mesh.pipeline_model_parallel_size);
  pipeline.schedule = schedule;
  const bool length_known = config.batch.train_iters > 0;  // not yet known with --train-epochs
  if (is_async(schedule) && !pipeline.async_window && length_known)
    pipeline.async_window = std::min(kDefaultWindow, config.batch.train_iters);
}

}  // namespace trifold
