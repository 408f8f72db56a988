#include "plan/zero_table.h"

#include <algorithm>

#include "plan/report.h"
#include "zero/sharded_optimizer.h"
#include "zero/zero_stage.h"

namespace trifold {

ZeroBytes zero_formula(int stage, double parameters, int shared, double weight_bytes,
                       double optimizer_bytes) {
  const ZeroStage zero = ZeroStage::of(stage);
  const auto part = [&](bool divided) { return divided ? parameters / shared : parameters; };
  return {weight_bytes * part(zero.parameters), weight_bytes * part(zero.gradients),
          optimizer_bytes * part(zero.optimizer)};
}

ZeroTable make_zero_table(const PlannedRun& planned, const PlannedMachine& machine,
                          CountedActivations counted) {
  const RunSpec& run = planned.run();
  const DType dtype = run.dtype;
  const int last = run.order.is_async() ? 2 : 3;
  ZeroTable table;
  table.shared = planned.zero().group;
  table.weight_bytes = static_cast<double>(size_of(dtype));
  table.gradient_bytes = static_cast<double>(size_of(accumulate_type(dtype)));
  table.optimizer_bytes = static_cast<double>(ShardedOptimizer::bytes_per_element(run.optimizer, dtype));
  for (int stage = 0; stage <= last; ++stage) {
    RunSpec other = run;
    other.zero.zero_stage = stage;
    if (run.zero.zero_stage < 2) other.zero.zero_reduce.reset();  // it has no effect on this run
    const std::vector<PlannedRank> ranks =
        planned_ranks(PlannedRun(std::move(other), planned.order()), machine, &counted);
    const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
      return a.memory.predicted_total() < b.memory.predicted_total();
    });
    table.rows.push_back({stage, most->memory,
                          zero_formula(stage, static_cast<double>(most->parameters), table.shared,
                                       table.weight_bytes, table.optimizer_bytes)});
  }
  return table;
}

}  // namespace trifold
