#include "config/nearest.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace trifold {

// Row i of the classic table holds the distances of the first i letters of `a` to every beginning of `b`; a
// swap looks two rows back, so three rows are kept.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> names) {
  // A very long word is compared by its beginning only: it cannot be a typing error, and the table is
  // quadratic.
  const std::string_view start = word.substr(0, 100);
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& name : names) {
    const bool cut_short = start.size() >= 2 && name.size() > start.size() && name.starts_with(start);
    const size_t distance = cut_short ? 1 : edit_distance(start, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace trifold
