// Whether a run fits the memory it may use, by its plan: before anything of the model is allocated, and
// without starting ranks. What does not fit is refused with what it needs and with what would fit, which is
// found by planning the run again with smaller micro-batches, recomputation, ZeRO and more ranks.
#pragma once

#include <vector>

#include "config/fields/config.h"
#include "layout/memory_report.h"

namespace trifold {

// Throws BadInput if a rank of this run needs more than --memory-limit. Without that option: if those ranks
// of the run that are on this host need more memory than it has; where a device computes, if those that share
// one need more than that has. `config` is resolved, its vocabulary included. Takes as long as planning does:
// milliseconds for a small model.
void check_memory_fits(const PretrainConfig& config);

// The same against --memory-limit alone, of a plan whose pipeline ranks need that much.
void check_memory_limit(const PretrainConfig& config, const std::vector<MemoryReport>& ranks);

}  // namespace trifold
