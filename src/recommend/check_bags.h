// Whether the bags of a data set leave room for a step.
#pragma once

#include <cstdint>

#include "clicks/click_source.h"

namespace trifold {

// Memory for the ids of a rank's batch is taken for bags that are all as long as the longest of their table. BadInput,
// naming the table whose bags need most, its longest bag and what to do, where a batch of so many `samples`, and the one
// that is read ahead, are more than `host_bytes`.
void check_bags(const ClickSource& source, int64_t samples, int64_t host_bytes);
// The same with the memory of this host.
void check_bags(const ClickSource& source, int64_t samples);

}  // namespace trifold
