#include "config/fields/expert_capacity.h"

#include <cmath>

namespace trifold {

namespace {

constexpr double kRounding = 1e-12;  // relative error of a factor such as 1.1

}  // namespace

int64_t expert_capacity(double factor, int64_t tokens, int64_t choices, int64_t experts) {
  const double rows = factor * static_cast<double>(tokens * choices) / static_cast<double>(experts);
  return rows < static_cast<double>(tokens) ? static_cast<int64_t>(std::ceil(rows * (1 - kRounding)))
                                            : tokens;
}

}  // namespace trifold
