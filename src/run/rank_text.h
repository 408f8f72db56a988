// The names of ranks in messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace trifold {

// "rank 7", "ranks 0-6 and 9": `ranks` ascending, each once.
std::string ranks_text(std::span<const int> ranks);

// The kind of `world`'s ranks: "thread", "MPI" or "NCCL".
std::string_view kind_of_ranks(const Communicator& world);

// "2 thread ranks, 1 thread each": all of `world`.
std::string ranks_text(const Communicator& world, int threads);

}  // namespace trifold
