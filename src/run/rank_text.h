// The names of ranks in messages.
#pragma once

#include <span>
#include <string>

#include "comm/communicator.h"

namespace trifold {

// "rank 7", "ranks 0-6 and 9": `ranks` ascending, each once.
std::string ranks_text(std::span<const int> ranks);

// "2 thread ranks, 1 thread each": all of `world`.
std::string ranks_text(const Communicator& world, int threads);

}  // namespace trifold
