// Ranks as messages name them.
#pragma once

#include <span>
#include <string>

namespace trifold {

// "rank 7", "ranks 0-6 and 9": `ranks` ascending, each once.
std::string ranks_text(std::span<const int> ranks);

}  // namespace trifold
