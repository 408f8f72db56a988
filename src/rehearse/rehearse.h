// Runs one rank of a mesh of any size alone in this process: the real construction, allocations, executor, streams and
// optimizer, over a communicator whose peers are absent (comm/absent_comm.h). Nothing is built for the other ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/forecast/planned_machine.h"
#include "rehearse/rehearsed_rank.h"
#include "train/pretrain.h"

namespace trifold {

struct RehearseOptions {
  int64_t steps = 3;
  // Micro-batches of the rank in a step; absent: all of the configuration's.
  std::optional<int64_t> micro_batches = {};
  // Whether the caller has changed the global batch too, so that it may differ from the checkpoint's.
  bool other_batch = false;
  // Prices collectives and messages: MeasuredCall::planned_seconds. Absent: they have no price.
  std::optional<PlannedMachine> machine = {};
  // Whether calls take their planned time on their stream (--wait planned); needs `machine`.
  bool waits = false;
  // Rows of this rank's experts, relative to the mean over the ranks that share the experts (--moe-load-imbalance).
  double expert_load = 1;
  double zipf_exponent = 1.05;  // exponent of the ids that peers of a recommender ask for
};

// The configuration with the global batch of `options.micro_batches` micro-batches on each rank, without a ramp of batch
// sizes; unchanged if that is absent. Only batch, length and saving of the run change.
PretrainConfig rehearsed_config(PretrainConfig config, const RehearseOptions& options);

// Rehearses rank `rank` of the job's mesh. The job's configuration may be the real run's: it is cut as above, and planned
// again if that changes it. What fails in the rank (memory that cannot be allocated, a checkpoint that cannot be read)
// is RehearsedRank::failure, with everything that was measured before. BadInput for options that cannot be rehearsed.
RehearsedRank rehearse_rank(const PretrainJob& job, int rank, const RehearseOptions& options);

}  // namespace trifold
