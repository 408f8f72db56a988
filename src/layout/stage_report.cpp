#include "layout/stage_report.h"

#include <numeric>

#include "models/stage_cut.h"

namespace trifold {

namespace {

int64_t parameters_of(const ParamList& params, const StageRange& range) {
  int64_t count = 0;
  for (const ParamSpec& spec : params.specs()) {
    const bool here = spec.block >= range.begin && spec.block < range.end;
    const bool counted = !spec.tied_to || params[*spec.tied_to].block < range.begin;
    if (here && counted) count += spec.shard.elements_of_part();
  }
  return count;
}

}  // namespace

std::vector<StageReport> report_stages(const CutModel& model) {
  const std::vector<double> costs = model.model.block_costs();
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  const std::vector<int> layers = layers_of(model.model, model.stages);
  const std::vector<int> heads = heads_of(model.model, model.stages);
  std::vector<StageReport> stages;
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const StageRange& range = model.stages[i];
    const double cost = std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0);
    stages.push_back({model.rank_of_stage[i], range, layers[i], heads[i],
                      parameters_of(model.model.params, range), cost / all});
  }
  return stages;
}

}  // namespace trifold
