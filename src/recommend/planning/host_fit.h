// Checks whether a recommender fits the memory of this host, from its plan, before anything is allocated and without
// starting ranks. Ranks without a device need host memory for everything; ranks with a device for tables that are
// stored on the host (--table-cache) and for pinned memory. A run that does not fit is rejected with its needs and with
// changes that would make it fit.
#pragma once

#include <cstddef>
#include <string>

#include "recommend/planning/recommender_memory.h"
#include "recommend/recommender_setup.h"

namespace trifold {

// BadInput if all ranks on this host together need more than `host` bytes (0: unknown). `setup` belongs to `config`.
void check_host_fits(const RecommendConfig& config, const RecommenderSetup& setup, size_t host);
// check_host_fits with the memory of this host (memory_for_ranks).
void check_host_fits(const RecommendConfig& config, const RecommenderSetup& setup);

// Why rank `rank` of the run cannot run alone on this host, with changes that would help: "needs 40.00 GiB (tables ...),
// and this host has 22.00 GiB: it fits with ...". Empty if it can, or if the host's memory is unknown.
std::string misfit_alone(const RecommendConfig& config, const RecommenderSetup& setup, int rank);

// Bytes that ranks on this host can use; with devices, bytes that can be pinned. 0: unknown.
size_t memory_for_ranks(bool has_device);

}  // namespace trifold
