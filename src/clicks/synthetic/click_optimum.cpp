#include "clicks/synthetic/click_optimum.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace trifold {

double logistic(double z) { return 1.0 / (1.0 + std::exp(-z)); }

double& ScoreDistribution::at(int64_t index) {
  if (masses_.empty()) first_ = index;
  if (index < first_) {
    masses_.insert(masses_.begin(), static_cast<size_t>(first_ - index), 0.0);
    first_ = index;
  }
  const auto place = static_cast<size_t>(index - first_);
  if (place >= masses_.size()) masses_.resize(place + 1, 0.0);
  return masses_[place];
}

void ScoreDistribution::add(double value, double mass) {
  const double cells = value / kStep;
  const double below = std::floor(cells);
  const double upper = cells - below;
  const auto index = static_cast<int64_t>(below);
  at(index) += mass * (1 - upper);
  if (upper > 0) at(index + 1) += mass * upper;
}

void ScoreDistribution::mix(const ScoreDistribution& other, double share) {
  if (other.masses_.empty()) return;
  at(other.first_);
  at(other.first_ + std::ssize(other.masses_) - 1);
  const auto shift = static_cast<size_t>(other.first_ - first_);
  for (size_t i = 0; i < other.masses_.size(); ++i) masses_[shift + i] += share * other.masses_[i];
}

void ScoreDistribution::convolve(const ScoreDistribution& other) {
  if (masses_.empty() || other.masses_.empty()) {
    masses_.clear();
    return;
  }
  std::vector<double> sum(masses_.size() + other.masses_.size() - 1, 0.0);
  for (size_t i = 0; i < other.masses_.size(); ++i) {
    const double mass = other.masses_[i];
    if (mass == 0) continue;
    for (size_t k = 0; k < masses_.size(); ++k) sum[i + k] += mass * masses_[k];
  }
  masses_ = std::move(sum);
  first_ += other.first_;
}

double ScoreDistribution::mass() const { return std::accumulate(masses_.begin(), masses_.end(), 0.0); }

ClickOptimum ScoreDistribution::optimum(double positive_rate) const {
  check(std::abs(mass() - 1) < 1e-6, "a distribution of scores has a total probability of {} instead of 1",
        mass());
  const auto positives = [&](double bias) {
    double sum = 0;
    for (size_t i = 0; i < masses_.size(); ++i) sum += masses_[i] * logistic(bias + value(i));
    return sum;
  };
  double low = -60;
  double high = 60;
  for (int step = 0; step < 100; ++step) {
    const double middle = (low + high) / 2;
    (positives(middle) < positive_rate ? low : high) = middle;
  }
  ClickOptimum best;
  best.bias = (low + high) / 2;
  double rate = 0;
  double ranked = 0;           // pairs (positive, negative) in the right order, ties half
  double negatives_below = 0;  // mass
  for (size_t i = 0; i < masses_.size(); ++i) {
    const double p = logistic(best.bias + value(i));
    const double positive = masses_[i] * p;
    const double negative = masses_[i] * (1 - p);
    ranked += positive * (negatives_below + negative / 2);
    negatives_below += negative;
    rate += positive;
    if (p > 0 && p < 1) best.log_loss -= masses_[i] * (p * std::log(p) + (1 - p) * std::log1p(-p));
  }
  best.auc = ranked / (rate * negatives_below);
  return best;
}

}  // namespace trifold
