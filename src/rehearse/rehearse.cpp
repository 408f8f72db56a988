#include "rehearse/rehearse.h"

#include <algorithm>

#include "core/bytes_text.h"
#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "mesh/mesh_sizes.h"
#include "plan/memory_fit.h"
#include "plan/report.h"
#include "rehearse/lone_trainer.h"

namespace trifold {

namespace {

// Turns off what compares this rank with others, which always differ from it here.
PretrainConfig without_comparisons(PretrainConfig config, std::vector<std::string>& notes) {
  if (config.checkpoint.check_replicas.value_or(0) > 0)
    notes.emplace_back("--check-replicas is not done: there are no other copies to compare with");
  config.checkpoint.check_replicas.reset();
  if (config.log.check_overlap > 0)
    notes.emplace_back(
        "--check-overlap is not done: what arrives in a repeated step is other random numbers");
  config.log.check_overlap = 0;
  if (!config.mesh.threads_per_rank && config.mesh.device != ComputeDevice::Cuda)
    config.mesh.threads_per_rank =
        available_cores() / std::clamp(config.mesh.ranks_per_node.value_or(1), 1, available_cores());
  return config;
}

// The plans of `config`, which is the job's up to a cut batch and the threads of a rank, on which gathered keys depend.
PlannedRuns plans_of(const PretrainConfig& config, const PretrainJob& job) {
  const BatchConfig &mine = config.batch, &whole = job.config.batch;
  const bool same = !job.planned.empty() && mine.global_batch_size == whole.global_batch_size &&
                    mine.rampup_batch_size == whole.rampup_batch_size &&
                    job.planned.first().run().mesh.threads_per_rank == config.mesh.threads_per_rank;
  return same ? job.planned : PlannedRuns(run_spec_here(config));
}

// A rank that needs more memory than the host has would be killed, which no report survives.
void check_fits(const MemoryReport& planned, const PretrainConfig& config) {
  if (config.mesh.device == ComputeDevice::Cuda) return;  // allocation fails with a message
  const size_t needed = planned.predicted_total(), here = free_memory();
  if (here > 0 && needed > here)
    fail("the rank needs {}, and this host has {} free", bytes_text(needed), bytes_text(here));
}

}  // namespace

PretrainConfig rehearsed_config(PretrainConfig config, const RehearseOptions& options) {
  if (!options.micro_batches) return config;
  const int64_t data = mesh_sizes(config.mesh)[Axis::Dp];
  config.batch.global_batch_size = *options.micro_batches * config.batch.micro_batch_size * data;
  config.batch.rampup_batch_size.clear();
  return config;
}

RehearsedRank rehearse_rank(const PretrainJob& job, int rank, const RehearseOptions& options) {
  const PretrainConfig cut = rehearsed_config(job.config, options);
  const MeshSizes sizes = mesh_sizes(cut.mesh);
  if (rank < 0 || rank >= sizes.ranks())
    bad_input("--only-ranks {}: the mesh has ranks 0 to {}", rank, sizes.ranks() - 1);
  check(!options.waits || options.machine, "calls can only wait for planned times if a machine prices them");
  RehearsedRank result;
  result.rank = rank;
  result.pipeline_rank = coords_of(rank, sizes)[Axis::Pp];
  const PretrainConfig config = without_comparisons(cut, result.notes);
  const PlannedRuns planned = plans_of(config, job);
  const PlannedRun& first = planned.first();
  result.planned = planned_rank(first, result.pipeline_rank).memory;
  result.micro_batches = first.order().micros;
  result.resident_bytes = resident_memory();
  try {
    check_fits(result.planned, config);
    LoneTrainer alone(config, planned, *job.train, &job.start, rank, options);
    measure(alone, alone.calls(), options.steps, result);
    if (alone.skipped() > 0)
      result.notes.push_back(fmt::format(
          "{} of its steps made no update, because gradients overflowed with the loss scale; a smaller "
          "--initial-loss-scale shows the time of updates",
          alone.skipped()));
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace trifold
