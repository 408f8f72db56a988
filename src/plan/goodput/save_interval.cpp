#include "plan/goodput/save_interval.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trifold {

double SaveCosts::first_period(int64_t interval) const {
  return static_cast<double>(interval) * step + stall;
}

double SaveCosts::period(int64_t interval) const {
  return std::max(static_cast<double>(interval) * step, tail) + stall;
}

double young_interval(double save, double mtbf) { return std::sqrt(2 * save * mtbf); }

double daly_interval(double save, double mtbf) {
  if (save >= 2 * mtbf) return mtbf;
  if (std::isinf(mtbf)) return save > 0 ? mtbf : 0;
  const double ratio = save / (2 * mtbf);
  return young_interval(save, mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save;
}

double steady_goodput(const SaveCosts& costs, int64_t interval, double mtbf) {
  const double work = static_cast<double>(interval) * costs.step;
  const double period = costs.period(interval);
  if (std::isinf(mtbf)) return work / period;
  const double first = costs.restart + costs.first_period(interval) + costs.tail;
  return work / (mtbf + costs.detect) * std::exp(-first / mtbf) / -std::expm1(-period / mtbf);
}

// The goodput rises up to its maximum and falls after it, so that an interval whose successor is not better is at the
// maximum or beyond it. Goodput so low that it is zero in f64 counts as beyond.
int64_t best_interval(const SaveCosts& costs, double mtbf, int64_t most) {
  int64_t low = 1, high = most;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (steady_goodput(costs, middle + 1, mtbf) > steady_goodput(costs, middle, mtbf))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace trifold
