// Checks by its plan whether a recommender fits the memory of this host, before anything is allocated and without starting
// ranks: whole ranks without a device; with one, tables that are kept on the host for it (--table-cache), and what else is
// pinned or kept there. A run that does not fit is rejected with its needs and with changes that would make it fit.
#pragma once

#include <cstddef>

#include "recommend/planning/recommender_memory.h"
#include "recommend/recommender_setup.h"

namespace trifold {

// BadInput if the ranks that will share this host need more than `host` bytes together; 0: unknown. `setup` is that of
// the configuration.
void check_host_fits(const RecommendConfig& config, const RecommenderSetup& setup, size_t host);
// With the memory that this host has: what can be pinned if the ranks have devices.
void check_host_fits(const RecommendConfig& config, const RecommenderSetup& setup);

// Bytes of this host that such ranks can use; 0: unknown.
size_t memory_for_ranks(bool has_device);

}  // namespace trifold
