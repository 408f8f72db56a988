#include "launch/size_lines.h"

#include <fmt/format.h>

#include "core/bytes_text.h"

namespace trifold::launch {

std::vector<PlannedSize> planned_sizes(const RunSpec& run, const PlannedMachine& machine) {
  std::vector<PlannedSize> sizes;
  if (!run.batch_sizes.grows()) return sizes;
  for (const StepsOfSize& batch : run.batch_sizes.sizes_of()) {
    const RunSpec sized = run.with_batch(batch.size);
    const PlannedRun planned(sized, batches_to_simulate(sized));
    sizes.push_back({batch, sized.micros(), plan_outcome(planned, machine)});
  }
  return sizes;
}

std::vector<std::string> size_lines(const std::vector<PlannedSize>& sizes) {
  std::vector<std::string> lines;
  if (sizes.empty()) return lines;
  lines.emplace_back("batches     grow with --rampup-batch-size");
  lines.push_back(fmt::format("  {:>9}  {:>11} {:>12} {:>11} {:>9}  {:>11}", "samples", "steps",
                              "micro-batches", "step", "bubble", "memory"));
  for (const PlannedSize& size : sizes)
    lines.push_back(fmt::format(
        "  {:>9}  {:>11} {:>13} {:>11} {:>7.2f} %  {:>11}", size.batch.size,
        size.batch.steps == StepsOfSize::kEndless ? "all others" : std::to_string(size.batch.steps),
        size.micros, seconds_text(size.outcome.step_seconds), 100 * size.outcome.bubble,
        bytes_text(size.outcome.most_bytes())));
  return lines;
}

nlohmann::ordered_json to_json(const std::vector<PlannedSize>& sizes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedSize& size : sizes) {
    nlohmann::ordered_json one{{"samples", size.batch.size},
                               {"micro_batches", size.micros},
                               {"step_seconds", size.outcome.step_seconds},
                               {"bubble", size.outcome.bubble},
                               {"bytes", size.outcome.most_bytes()}};
    if (size.batch.steps != StepsOfSize::kEndless) one["steps"] = size.batch.steps;
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace trifold::launch
