#include "layout/stage_report.h"

#include <algorithm>
#include <numeric>

namespace trifold {

namespace {

int64_t parameters_of(const ParamList& params, const StageRange& range) {
  int64_t count = 0;
  for (const ParamSpec& spec : params.specs()) {
    const bool here = spec.block >= range.begin && spec.block < range.end;
    const bool counted = !spec.tied_to || params[*spec.tied_to].block < range.begin;
    if (here && counted) count += spec.shard.global.elements();
  }
  return count;
}

}  // namespace

std::vector<StageReport> report_stages(const CutModel& model) {
  const std::vector<double> costs = model.model.block_costs();
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  const int head = static_cast<int>(costs.size()) - 1;
  std::vector<StageReport> stages;
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const StageRange& range = model.stages[i];
    const double cost = std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0);
    const int layers = std::max(0, std::min(range.end, head) - std::max(range.begin, 1));
    stages.push_back(
        {model.rank_of_stage[i], range, layers, parameters_of(model.model.params, range), cost / all});
  }
  return stages;
}

}  // namespace trifold
