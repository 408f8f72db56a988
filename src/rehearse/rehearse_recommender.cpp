#include "rehearse/rehearse_recommender.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/bytes_text.h"
#include "core/host_memory.h"
#include "recommend/recommender_setup.h"
#include "recommend/run_options.h"
#include "rehearse/alone.h"
#include "rehearse/lone_recommender.h"

namespace trifold {

namespace {

// The job of a rank alone. The copy reads the samples of `job`.
RecommendJob alone(const RecommendJob& job, std::vector<std::string>& notes) {
  RecommendJob copy;
  static_cast<RunJob&>(copy) = job;
  copy.config = job.config;
  copy.data.train = job.data.train;
  copy.data.valid = job.data.valid;
  leave_out_comparisons(copy.config.checkpoint, copy.config.log, notes);
  take_cores(copy.config.mesh);
  return copy;
}

// The communicators of a recommender exchange ids, vectors, or sums over all ranks.
void name_groups(std::vector<MeasuredCall>& calls, const std::vector<AbsentCalls>& counted) {
  for (size_t i = 0; i < std::min(calls.size(), counted.size()); ++i) {
    const unsigned kind = counted[i].group & 0xFFFFU;
    if (kind == ids_group(0)) calls[i].group = "ids";
    if (kind == vectors_group(0)) calls[i].group = "vectors";
  }
}

ClickFeed feed_of(const RecommendJob& job) { return training_feed(job.config, *job.data.train); }

AbsentClicksOptions clicks_of(const RehearseOptions& options) {
  AbsentClicksOptions clicks;
  clicks.zipf = options.zipf_exponent;
  if (!options.machine) return clicks;
  clicks.bytes_per_second = options.machine->bytes_per_second;
  clicks.latency = options.machine->message_latency;
  return clicks;
}

}  // namespace

void check_fits(size_t rank, size_t peers, size_t free) {
  if (free > 0 && rank + peers > free)
    fail(
        "the rank needs {} of the host's memory and the ids that absent ranks ask for {}, and this host has {} free",
        bytes_text(rank), bytes_text(peers), bytes_text(free));
}

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
    const AbsentClicksOptions clicks = clicks_of(options);
    check_fits(planned.on_host(on_device),
               AbsentClicks::planned_bytes(setup, rank, ranks, feed_of(lone), clicks), free_memory());
    LoneRecommender recommender(lone, rank, clicks, options.waits);
    measure(recommender, recommender.calls(), options.steps, result);
    name_groups(result.calls, recommender.calls().list());
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace trifold
