// Whether the bags of a data set leave room for a step.
#pragma once

#include <cstdint>

#include "clicks/click_source.h"

namespace trifold {

// Memory for the ids of a rank's batch is taken for bags that are all as long as the longest of their table. BadInput
// if a batch of `samples` samples and the one that is read ahead need more than `host_bytes`; it names the table whose
// bags need most, its longest bag and the remedy.
void check_bags(const ClickSource& source, int64_t samples, int64_t host_bytes);
// The same with the memory of this host.
void check_bags(const ClickSource& source, int64_t samples);

}  // namespace trifold
