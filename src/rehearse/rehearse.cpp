#include "rehearse/rehearse.h"

#include "core/bytes_text.h"
#include "core/host_memory.h"
#include "mesh/mesh_sizes.h"
#include "plan/memory_fit.h"
#include "plan/report.h"
#include "rehearse/alone.h"
#include "rehearse/lone_trainer.h"

namespace trifold {

namespace {

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
  PretrainConfig config = rehearsed_config(job.config, options);
  const MeshSizes sizes = mesh_sizes(config.mesh);
  if (rank < 0 || rank >= sizes.ranks())
    bad_input("--only-ranks {}: the mesh has ranks 0 to {}", rank, sizes.ranks() - 1);
  check(!options.waits || options.machine, "calls can only wait for planned times if a machine prices them");
  RehearsedRank result;
  result.rank = rank;
  result.pipeline_rank = coords_of(rank, sizes)[Axis::Pp];
  leave_out_comparisons(config.checkpoint, config.log, result.notes);
  take_cores(config.mesh);
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
