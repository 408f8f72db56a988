#include "plan/goodput/goodput.h"

#include <algorithm>
#include <cmath>

#include "config/commands/validate.h"
#include "config/subjects/planning/goodput.h"
#include "core/bytes_text.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr double kHour = 3600;
constexpr double kCopyRate = 10e9;  // bytes a second of a rank's copy for a background save
constexpr size_t kSmallerMeshes = 2;

int64_t nodes_of(int64_t ranks, int64_t ranks_per_node) {
  return (ranks + ranks_per_node - 1) / ranks_per_node;
}

int64_t ranks_per_node(const MeshConfig& mesh, const PlannedMachine& machine) {
  if (mesh.ranks_per_node) return *mesh.ranks_per_node;
  if (machine.hardware)
    return std::clamp<int64_t>(std::llround(machine.hardware->devices_per_node), 1, mesh.ranks);
  bad_input("--mtbf needs --ranks-per-node or --hardware, to know how many ranks share a node");
}

double save_seconds(const GoodputConfig& config, double bytes) {
  if (config.save_seconds) return *config.save_seconds;
  const double rate = config.storage_gbps.value() * 1e9;
  if (bytes / rate > kMostGoodputSeconds)
    bad_input(
        "--storage-gbps {}: a checkpoint of {} would take more than a year to write; give at least {:.2g}",
        *config.storage_gbps, bytes_text(static_cast<size_t>(bytes)),
        1.05 * bytes / kMostGoodputSeconds / 1e9);
  return bytes / rate;
}

SaveCosts save_costs(const GoodputConfig& config, const PlannedTraining& training) {
  SaveCosts costs;
  costs.step = training.step;
  costs.detect = config.detect_seconds.value_or(training.timeout);
  costs.restart = config.restart_seconds;
  const double save = save_seconds(config, training.checkpoint.all);
  if (!training.saves_in_background) {
    costs.stall = save;
    return costs;
  }
  costs.stall = config.save_stall_seconds.value_or(training.checkpoint.rank / kCopyRate);
  costs.tail = save;
  return costs;
}

bool fits(const PlanConfig& config, const PlanOutcome& outcome) {
  if (outcome.forecast && !outcome.forecast->fits(outcome.most_bytes())) return false;
  constexpr double kGib = 1 << 30;
  const std::optional<double> limit = config.run.mesh.memory_limit;
  return !limit || static_cast<double>(outcome.most_bytes()) <= *limit * kGib;
}

// The plan of the run on `data` replicas; none if the options, or memory, do not allow it.
std::optional<double> step_on(PlanConfig config, int data, const PlannedMachine& machine) {
  MeshConfig& mesh = config.run.mesh;
  mesh.ranks = mesh.ranks / *mesh.data_parallel_size * data;
  mesh.data_parallel_size = data;
  try {
    config = resolve(std::move(config));
    const RunSpec run = run_spec(config.run);
    const PlanOutcome outcome = plan_outcome(PlannedRun(run, batches_to_simulate(run)), machine);
    if (!fits(config, outcome)) return std::nullopt;
    return outcome.step_seconds;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;
    return std::nullopt;
  }
}

// The largest meshes with fewer replicas among which the global batch divides, each on fewer nodes than the one before:
// a mesh that needs as many nodes does not help when one is broken.
std::vector<SmallerMesh> smaller_meshes(const PlanConfig& config, const PlannedMachine& machine,
                                        int64_t node) {
  const MeshConfig& mesh = config.run.mesh;
  const int replica = mesh.ranks / *mesh.data_parallel_size;
  int64_t fewest = nodes_of(mesh.ranks, node);
  std::vector<SmallerMesh> meshes;
  for (int data = *mesh.data_parallel_size - 1; data > 0 && meshes.size() < kSmallerMeshes; --data) {
    const int64_t nodes = nodes_of(int64_t{replica} * data, node);
    if (nodes >= fewest) continue;
    if (*config.run.batch.global_batch_size % (config.run.batch.micro_batch_size * data) != 0) continue;
    if (const std::optional<double> step = step_on(config, data, machine)) {
      meshes.push_back({data, {nodes, *step}});
      fewest = nodes;
    }
  }
  return meshes;
}

// The best interval in closed form, others around it, and that of the run.
std::vector<int64_t> intervals(const GoodputReport& report, std::optional<int64_t> of_run) {
  const int64_t best = best_interval(report.costs, report.mtbf, report.steps);
  std::vector<int64_t> all = {best};
  for (const int64_t factor : {2, 4}) all.insert(all.end(), {best / factor, best * factor});
  if (of_run) all.push_back(*of_run);
  for (int64_t& interval : all) interval = std::clamp<int64_t>(interval, 1, report.steps);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

GoodputRow row_of(const GoodputConfig& config, const PlannedTraining& training, const GoodputReport& report,
                  int64_t interval) {
  FailingRun run;
  run.costs = report.costs;
  run.meshes = {{report.nodes, report.costs.step}};
  run.steps = report.steps;
  run.interval = interval;
  run.node_mtbf = *config.mtbf * kHour;
  run.spares = config.spare_nodes;
  run.repair = config.repair_hours * kHour;
  GoodputRow row;
  row.interval = interval;
  row.is_save_interval = training.save_interval == interval;
  row.steady = steady_goodput(report.costs, interval, report.mtbf);
  row.waiting = row.shrinking = forecast_failures(run, training.seed, config.goodput_trials);
  if (report.smaller.empty()) return row;
  // A step that is shorter on fewer ranks says that the whole mesh is too large. It is no gain from failures.
  for (const SmallerMesh& smaller : report.smaller)
    run.meshes.push_back({smaller.mesh.nodes, std::max(smaller.mesh.step, report.costs.step)});
  row.shrinking = forecast_failures(run, training.seed, config.goodput_trials);
  return row;
}

}  // namespace

double planned_timeout(const MeshConfig& mesh, const WatchConfig& watch, double step) {
  const double most = mesh.distributed_timeout_minutes * 60;
  if (watch.timeout_factor == 0) return most;
  return std::min(most, std::max(watch.timeout_floor_seconds, watch.timeout_factor * step));
}

GoodputReport make_goodput(const GoodputConfig& config, const PlannedTraining& training) {
  constexpr double kHorizon = 30 * 24 * kHour;
  GoodputReport report;
  report.ranks_per_node = training.ranks_per_node;
  report.nodes = nodes_of(training.ranks, training.ranks_per_node);
  report.mtbf = *config.mtbf * kHour / static_cast<double>(report.nodes);
  report.checkpoint = training.checkpoint;
  report.costs = save_costs(config, training);
  report.steps_are_given = training.steps > 0;
  report.epochs = training.epochs;
  report.steps =
      report.steps_are_given ? training.steps : std::max<int64_t>(1, std::llround(kHorizon / training.step));
  report.young = young_interval(report.costs.stall, report.mtbf);
  report.daly = daly_interval(report.costs.stall, report.mtbf);
  report.smaller = training.smaller;
  for (const int64_t interval : intervals(report, training.save_interval))
    report.rows.push_back(row_of(config, training, report, interval));
  const auto worse = [](const GoodputRow& a, const GoodputRow& b) { return is_worse(a.best(), b.best()); };
  report.best = static_cast<size_t>(std::max_element(report.rows.begin(), report.rows.end(), worse) -
                                    report.rows.begin());
  return report;
}

GoodputReport make_goodput(const PlanConfig& config, const PlannedRun& planned, const PlannedMachine& machine,
                           double step_seconds) {
  const PretrainConfig& run = config.run;
  PlannedTraining training;
  training.step = step_seconds;
  if (knows_length(config) && !run.batch.train_epochs) training.steps = run.batch.train_iters;
  training.epochs = run.batch.train_epochs;
  training.ranks = run.mesh.ranks;
  training.ranks_per_node = ranks_per_node(run.mesh, machine);
  training.checkpoint = checkpoint_bytes(planned, run.checkpoint);
  training.saves_in_background = run.checkpoint.async_save;
  training.save_interval = run.checkpoint.save_interval;
  training.timeout = planned_timeout(run.mesh, run.log.watch, step_seconds);
  training.seed = run.seed;
  training.smaller = smaller_meshes(config, machine, training.ranks_per_node);
  return make_goodput(config.goodput, training);
}

}  // namespace trifold
