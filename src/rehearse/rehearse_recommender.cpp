#include "rehearse/rehearse_recommender.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/bytes_text.h"
#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "recommend/recommender_setup.h"
#include "rehearse/lone_recommender.h"

namespace trifold {

namespace {

// The job without what compares this rank with others. The copy reads the samples of `job`.
RecommendJob alone(const RecommendJob& job, std::vector<std::string>& notes) {
  RecommendJob copy;
  static_cast<RunJob&>(copy) = job;
  copy.config = job.config;
  copy.data.train = job.data.train;
  copy.data.valid = job.data.valid;
  RecommendConfig& config = copy.config;
  if (config.checkpoint.check_replicas.value_or(0) > 0)
    notes.emplace_back("--check-replicas is not done: there are no other copies to compare with");
  config.checkpoint.check_replicas.reset();
  if (config.log.check_overlap > 0)
    notes.emplace_back(
        "--check-overlap is not done: what arrives in a repeated step is other random numbers");
  config.log.check_overlap = 0;
  MeshConfig& mesh = config.mesh;
  if (!mesh.threads_per_rank && mesh.device != ComputeDevice::Cuda)
    mesh.threads_per_rank =
        available_cores() / std::clamp(mesh.ranks_per_node.value_or(1), 1, available_cores());
  return copy;
}

// A rank that needs more memory than the host has would be killed, which no report survives.
void check_fits(const RecommenderMemory& planned, bool on_device) {
  const size_t needed = planned.on_host(on_device), here = free_memory();
  if (here > 0 && needed > here)
    fail("the rank needs {} of the host's memory, and this host has {} free", bytes_text(needed),
         bytes_text(here));
}

// The communicators of a recommender exchange ids, vectors, or sums over all ranks.
void name_groups(std::vector<MeasuredCall>& calls, const std::vector<AbsentCalls>& counted) {
  for (size_t i = 0; i < std::min(calls.size(), counted.size()); ++i) {
    const unsigned kind = counted[i].group & 0xFFFFU;
    if (kind == ids_group(0)) calls[i].group = "ids";
    if (kind == vectors_group(0)) calls[i].group = "vectors";
  }
}

AbsentClicksOptions clicks_of(const RehearseOptions& options) {
  AbsentClicksOptions clicks;
  clicks.zipf = options.zipf_exponent;
  if (!options.machine) return clicks;
  clicks.bytes_per_second = options.machine->bytes_per_second;
  clicks.latency = options.machine->message_latency;
  return clicks;
}

}  // namespace

RehearsedRank rehearse_rank(const RecommendJob& job, int rank, const RehearseOptions& options) {
  const int ranks = job.config.mesh.ranks;
  if (rank < 0 || rank >= ranks) bad_input("--only-ranks {}: the run has ranks 0 to {}", rank, ranks - 1);
  if (options.micro_batches)
    bad_input("--micro-batches: the step of a recommender has one batch on each rank");
  check(!options.waits || options.machine, "calls can only wait for planned times if a machine prices them");
  RehearsedRank result;
  result.rank = rank;
  result.micro_batches = 1;
  const RecommendJob lone = alone(job, result.notes);
  const RecommenderSetup setup = recommender_setup(lone.config, lone.data.schema(), ranks);
  const bool on_device = lone.config.mesh.device == ComputeDevice::Cuda;
  const RecommenderMemory planned =
      memory_of_ranks(setup, placement_of(setup, ranks), on_device)[static_cast<size_t>(rank)];
  result.parts = memory_parts(planned);
  result.resident_bytes = resident_memory();
  try {
    check_fits(planned, on_device);
    LoneRecommender recommender(lone, rank, clicks_of(options), options.waits);
    measure(recommender, recommender.calls(), options.steps, result);
    name_groups(result.calls, recommender.calls().list());
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace trifold
