#include "plan/layout_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/commands/commands.h"
#include "config/fields/pipeline_choice.h"
#include "core/error.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "models/stage_cut.h"

namespace trifold {

LayoutSpace::LayoutSpace(const PlanConfig& config, const std::vector<SearchAxis>& axes,
                         int64_t devices_per_node, std::vector<Schedule> schedules)
    : config_(config), axes_(axes), job_{config.run, devices_per_node, std::move(schedules)} {}

std::vector<LayoutCandidate> LayoutSpace::candidates() {
  candidates_.clear();
  Layout layout = layout_of(config_.run);
  visit(0, layout);
  return std::move(candidates_);
}

std::string LayoutSpace::problem() const {
  if (!first_problem_.empty()) return first_problem_;
  if (!unmet_need_.empty() && is_divided_) return std::string(unmet_need_);
  return fmt::format(
      "they must be divisible by tensor ranks (here at most {} of a node) x context ranks x pipeline ranks (at "
      "most {}, the layers), and the quotient must divide --global-batch-size {}",
      job_.devices_per_node, config_.run.model.num_layers, *config_.run.batch.global_batch_size);
}

void LayoutSpace::visit(size_t depth, Layout& layout) {
  if (depth == kSearchAxes) return consider(layout);
  const SearchAxisInfo& info = search_axes()[depth];
  if (info.axis == SearchAxis::Schedule && !is_a_mesh(layout)) {
    is_divided_ = false;
    return;
  }
  if (std::find(axes_.begin(), axes_.end(), info.axis) == axes_.end()) return visit(depth + 1, layout);
  const int64_t given = layout[info.axis];
  const std::vector<int64_t> values = info.candidates(job_, layout);
  if (values.empty() && info.need.empty()) is_divided_ = false;
  if (values.empty() && unmet_need_.empty()) unmet_need_ = info.need;
  for (const int64_t value : values) {
    layout[info.axis] = value;
    visit(depth + 1, layout);
  }
  layout[info.axis] = given;
}

// Given axes may not be compatible with the chosen ones.
bool LayoutSpace::is_a_mesh(const Layout& layout) const {
  const int64_t model = ranks_of_copy(layout);
  return model > 0 && config_.run.mesh.ranks % model == 0;
}

void LayoutSpace::consider(const Layout& layout) {
  if (!can_run(layout)) return;
  PretrainConfig run = config_.run;
  write_layout(layout, axes_, run);
  const StageCounts* stages = stages_of(run);
  if (stages != nullptr && !has_idle_parts(run, *stages)) candidates_.push_back({layout, stages});
}

// Whether the search cut the head into parts that all stay on the last stage, which is no better than one block.
bool LayoutSpace::has_idle_parts(const PretrainConfig& run, const StageCounts& stages) const {
  const int parts = run.mesh.pipeline_vocab_parts;
  return parts > 1 && std::count(axes_.begin(), axes_.end(), SearchAxis::HeadParts) > 0 &&
         stages.heads.back() == parts;
}

// The result is cached per mesh, schedule, number of stages and micro-batches, with and without sequence parallelism.
bool LayoutSpace::can_run(const Layout& layout) {
  const RunKey key{
      layout[SearchAxis::Tensor],           layout[SearchAxis::Context],   layout[SearchAxis::Exchange],
      layout[SearchAxis::Pipeline],         layout[SearchAxis::Expert],    layout[SearchAxis::ExpertTensor],
      layout[SearchAxis::HeadParts],        layout[SearchAxis::Schedule],  layout[SearchAxis::Stages],
      layout[SearchAxis::SequenceParallel], layout[SearchAxis::MicroBatch]};
  const auto known = can_run_.find(key);
  if (known != can_run_.end()) return known->second;
  PlanConfig one = config_;
  write_layout(layout, axes_, one.run);
  const std::vector<Problem> wrong = problems(one);
  if (!wrong.empty() && first_problem_.empty()) first_problem_ = text_of(wrong.front());
  return can_run_.emplace(key, wrong.empty()).first->second;
}

const LayoutSpace::CostedModel& LayoutSpace::model_of(const PretrainConfig& run) {
  const ModelKey key{run.mesh.tensor_model_parallel_size, run.mesh.context_parallel_size,
                     run.mesh.expert_model_parallel_size, run.mesh.expert_tensor_parallel_size,
                     run.mesh.pipeline_vocab_parts};
  const auto known = models_.find(key);
  if (known != models_.end()) return known->second;
  CostedModel made{make_model(run.model, Mesh(mesh_sizes(run.mesh), {}), run.seed, run.mesh), {}};
  made.costs = block_costs(made.model, sample_flops(run.model, run.mesh.tensor_model_parallel_size));
  return models_.emplace(key, std::move(made)).first->second;
}

// Null if the layers cannot be divided as requested.
const StageCounts* LayoutSpace::stages_of(const PretrainConfig& run) {
  const int pipeline = run.mesh.pipeline_model_parallel_size;
  const int chunks = stages_per_rank(run.pipeline, run.model.num_layers, pipeline).value_or(1);
  const CutKey key{run.mesh.tensor_model_parallel_size, run.mesh.context_parallel_size, pipeline, chunks,
                   run.mesh.pipeline_vocab_parts};
  auto known = cuts_.find(key);
  if (known == cuts_.end()) {
    StageCounts stages;  // empty: cannot be divided
    try {
      const auto& [model, costs] = model_of(run);
      const std::vector<StageRange> cut = cut_stages(run.mesh, model, costs, pipeline * chunks);
      stages = stage_counts(model, cut);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      if (first_problem_.empty()) first_problem_ = error.what();
    }
    known = cuts_.emplace(key, std::move(stages)).first;
  }
  return known->second.layers.empty() ? nullptr : &known->second;
}

}  // namespace trifold
