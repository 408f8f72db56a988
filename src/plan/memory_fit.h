// Checks whether the plan of a run fits the memory it may use, before ranks are started or anything of the model is
// allocated. A run that does not fit is rejected with its needs and with changes that would make it fit, found by
// planning again with smaller micro-batches, recomputation, ZeRO and more ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "layout/memory_report.h"
#include "plan/planned_run.h"

namespace trifold {

// The RunSpec of a resolved configuration, including its vocabulary, for ranks on this host: the memory of context
// ranks depends on their number of threads, which is by default the host's number of cores.
RunSpec run_spec_here(const PretrainConfig& config);

// Throws BadInput if, with one of the plans, a rank of `planned` needs more than --memory-limit. Without that option: if the ranks on this host
// together need more memory than it has, or, on CUDA devices, if the ranks that share a device need more than it has.
// `planned` must be made from run_spec_here(config).
void check_memory_fits(const PretrainConfig& config, const PlannedRuns& planned);

// BadInput if a pipeline rank's needs, given in `ranks`, exceed --memory-limit.
void check_memory_limit(const PretrainConfig& config, const std::vector<MemoryReport>& ranks);

// Why a rank that needs `memory` cannot run alone on this host, which has less memory, or on its first CUDA device:
// "needs 40.00 GiB (weights ...), and this host has 22.00 GiB". Empty if it can, or if the host's memory is unknown.
std::string misfit_alone(const PretrainConfig& config, const MemoryReport& memory);

// Changes of options with which each rank would fit into this many GiB of its own (absent: what misfit_alone compares with):
// "it fits with --zero-stage 1 (12.00 GiB a rank), or with ...". Plans many variants of the run.
std::string what_would_fit_alone(const PretrainConfig& config, std::optional<double> memory_gib = {});

}  // namespace trifold
