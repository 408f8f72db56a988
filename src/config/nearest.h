// The known name nearest to a mistyped one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trifold {

// The least number of letters to insert, delete, replace or swap with their neighbour to get from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names` (the first of equals); a name that `word` is the beginning of counts as very near,
// because option names are often cut short. Empty when there are no names.
std::string nearest(std::string_view word, std::span<const std::string> names);

}  // namespace trifold
