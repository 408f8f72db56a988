// ScoreDistribution: the distribution of a planted model's score, as masses on a grid; it determines the best possible
// metrics (the method: clicks/synthetic/click_synthetic.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trifold {

double logistic(double z);

// The metrics of the best possible model on infinitely many samples.
struct ClickOptimum {
  double auc = 0.5;
  double log_loss = 0;  // natural logarithm
  double bias = 0;      // added to every score
};

class ScoreDistribution {
 public:
  struct Empty {};
  static constexpr double kStep = 1.0 / 256;  // distance of grid points

  ScoreDistribution() { add(0, 1); }  // all mass at 0, the neutral element of `convolve`
  explicit ScoreDistribution(Empty) {}

  // Adds mass at a value, split over the two nearest grid points so that the mean is kept.
  void add(double value, double mass);
  // Adds another distribution, times `share`.
  void mix(const ScoreDistribution& other, double share);
  // The distribution of the sum of two independent scores.
  void convolve(const ScoreDistribution& other);

  double mass() const;
  // For labels that are 1 with probability sigmoid(bias + score): the bias that makes a share `positive_rate` of labels
  // 1, and the metrics of ranking and predicting by the score. The mass must be 1.
  ClickOptimum optimum(double positive_rate) const;

 private:
  double& at(int64_t index);  // grows the grid
  double value(size_t i) const { return static_cast<double>(first_ + static_cast<int64_t>(i)) * kStep; }

  int64_t first_ = 0;  // grid index of masses_[0]
  std::vector<double> masses_;
};

}  // namespace trifold
