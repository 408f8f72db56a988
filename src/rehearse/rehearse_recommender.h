// Runs one rank of a recommender's mesh alone in this process, as rehearse/rehearse.h does a transformer's.
#pragma once

#include "recommend/recommend.h"
#include "rehearse/rehearse.h"

namespace trifold {

// Rehearses rank `rank` of the job's ranks. Peers ask for ids drawn from a Zipf law (options.zipf_exponent), in bags as
// long as the bags of the run's first batch: only the exchanges of ids, and the updates of the rows they ask for, therefore
// differ in size from a real run's. `options.machine` prices calls by its bytes_per_second and message_latency.
// RehearsedRank::parts has the memory by a recommender's categories. Failures and BadInput as for a transformer;
// `options.micro_batches` is not possible.
RehearsedRank rehearse_rank(const RecommendJob& job, int rank, const RehearseOptions& options);

// Error if a rank of `rank` bytes on the host, with `peers` bytes of ids that absent ranks ask for, does not fit into
// `free` bytes (0: unknown): it would be killed, which no report survives.
void check_fits(size_t rank, size_t peers, size_t free);

}  // namespace trifold
