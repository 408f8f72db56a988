// Known names that a person may have meant by an unknown one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// The least number of letters to insert, delete, replace or swap with their neighbour to get from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// Those of `names` that are like `word`, the most alike first, at most three; none where nothing is. A name
// is like `word` when a few typing errors lie between them (a quarter of its letters at most), when it begins
// with `word` or contains it whole, or when the parts between hyphens are mostly the same in any order. Where
// typing errors explain the word, its parts are not looked at.
std::vector<std::string> similar(std::string_view word, std::span<const std::string> names);

// "--a", "--a or --b", "--a, --b or --c"; each name after `dashes`.
std::string alternatives(std::span<const std::string> names, std::string_view dashes);

}  // namespace trifold
