#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trifold {

// The median; for an even number of values the larger of the middle two; 0 for none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace trifold
