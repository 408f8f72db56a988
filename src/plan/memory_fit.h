// Checks by its plan whether a run fits the memory it may use, before anything of the model is allocated and without
// starting ranks. A run that does not fit is rejected with its needs and with changes that would make it fit, found by
// planning again with smaller micro-batches, recomputation, ZeRO and more ranks.
#pragma once

#include <vector>

#include "config/fields/config.h"
#include "layout/memory_report.h"
#include "plan/planned_run.h"

namespace trifold {

// The run of a resolved configuration, its vocabulary included, as ranks on this host make it: the memory of context ranks
// depends on their threads, which are the host's cores unless the options say otherwise.
RunSpec run_spec_here(const PretrainConfig& config);

// Throws BadInput if a rank of the planned run needs more than --memory-limit. Without that option: if the ranks on this
// host together need more memory than it has, or, on CUDA devices, if the ranks that share a device need more than it
// has. `planned` is of the run_spec_here of `config`.
void check_memory_fits(const PretrainConfig& config, const PlannedRun& planned);

// BadInput if one of the pipeline ranks, which have these needs, exceeds --memory-limit, if that is given.
void check_memory_limit(const PretrainConfig& config, const std::vector<MemoryReport>& ranks);

}  // namespace trifold
