// Checks before a run that the ids of its batches fit into host memory.
#pragma once

#include <cstdint>

#include "clicks/click_source.h"

namespace trifold {

// The memory for the ids of a rank's batch has room for the longest bag of each table in every sample. BadInput if two
// batches of `samples` samples (one is read ahead) need more than `host_bytes`; the message names the table that needs
// most, its longest bag and the remedy.
void check_bags(const ClickSource& source, int64_t samples, int64_t host_bytes);
// Calls check_bags with the physical memory of this host.
void check_bags(const ClickSource& source, int64_t samples);

}  // namespace trifold
