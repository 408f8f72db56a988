#include "layout/stage_report.h"

#include <algorithm>
#include <numeric>

#include "models/stage_cut.h"

namespace trifold {

namespace {

int64_t parameters_of(const CutModel& model, const StageRange& range) {
  int64_t count = 0;
  for (const ParamSpec& spec : model.model.params.specs()) {
    const bool in_stage = spec.block >= range.begin && spec.block < range.end;
    if (in_stage && (!spec.tied_to || model.is_copy(spec))) count += spec.shard.elements_of_part();
  }
  return count;
}

// The number of parameters of the token embedding in a stage that only looks up tokens.
int parts_of(const CutModel& model, const StageRange& range) {
  const std::span<const ParamSpec> specs = model.model.params.specs();
  return static_cast<int>(std::count_if(specs.begin(), specs.end(), [&](const ParamSpec& spec) {
    return spec.block >= range.begin && spec.block < range.end;
  }));
}

}  // namespace

std::vector<StageReport> report_stages(const CutModel& model) {
  const std::vector<double> costs = model.block_costs();
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  const std::vector<int> layers = layers_of(model.model, model.stages);
  const std::vector<int> heads = heads_of(model.model, model.stages);
  std::vector<StageReport> stages;
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const StageRange& range = model.stages[i];
    const double cost = std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0);
    stages.push_back({model.rank_of_stage[i], range, layers[i], heads[i],
                      i < model.lookups().size() ? parts_of(model, range) : 0, parameters_of(model, range),
                      cost / all});
  }
  return stages;
}

}  // namespace trifold
