// Suggestions for an unknown name: known names that the user may have meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// The least number of letters to insert, delete, replace or swap with their neighbour that turns `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The names most similar to `word`, best first, at most three. A name is similar if it differs by a few typing errors
// (at most a quarter of its letters), if it begins with `word` or contains it, or if most of the parts between hyphens
// are the same in any order. Parts are compared only if no name is within a few typing errors.
std::vector<std::string> similar(std::string_view word, std::span<const std::string> names);

// "--a", "--a or --b", "--a, --b or --c"; each name after `dashes`.
std::string alternatives(std::span<const std::string> names, std::string_view dashes);

}  // namespace trifold
