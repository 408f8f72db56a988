// Checks by its plan whether a run fits the memory it may use, before anything of the model is allocated and without
// starting ranks. A run that does not fit is rejected with its needs and with changes that would make it fit, found by
// planning again with smaller micro-batches, recomputation, ZeRO and more ranks.
#pragma once

#include <vector>

#include "config/fields/config.h"
#include "layout/memory_report.h"

namespace trifold {

// Throws BadInput if a rank of this run needs more than --memory-limit. Without that option: if the ranks on this host
// together need more memory than it has, or, on CUDA devices, if the ranks that share a device need more than it has.
// `config` is resolved, its vocabulary included. Takes as long as planning does: milliseconds for a small model.
void check_memory_fits(const PretrainConfig& config);

// The same against --memory-limit only, for pipeline ranks with these needs.
void check_memory_limit(const PretrainConfig& config, const std::vector<MemoryReport>& ranks);

}  // namespace trifold
