// Which layers of a model have a property, in Megatron-LM's notation: a number N, whose meaning depends on the option, or
// a list of one 0 or 1 for each layer, in which lists are joined with + and repeated with *: "[0]*3+[1]*58",
// "([1,0]*12)".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trifold {

// The layers that a number N stands for: the first of each N (--moe-layer-freq), the last of each N (--no-rope-freq), or
// all others (--window-attn-skip-freq).
enum class EveryNth { First, Last, AllButLast };

// One entry for each of `layers`. Throws BadInput that begins with the text in quotes and says what is wrong with it.
std::vector<bool> parse_layer_pattern(std::string_view text, int64_t layers,
                                      EveryNth number = EveryNth::First);

}  // namespace trifold
