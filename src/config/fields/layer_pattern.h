// --moe-layer-freq: which layers of a model have experts, in Megatron-LM's notation: a number N, for every N-th layer
// from the first on, or a list of one 0 or 1 for each layer, in which lists are joined with + and repeated with *:
// "[0]*3+[1]*58", "([1,0]*12)".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trifold {

// One entry for each of `layers`. Throws BadInput that begins with the text in quotes and says what is wrong with it.
std::vector<bool> parse_layer_pattern(std::string_view text, int64_t layers);

}  // namespace trifold
