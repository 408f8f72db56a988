// ScoreDistribution: how the score of a planted model is distributed, as masses on a grid; from it follows
// what the best model can reach (the method: clicks/click_synthetic.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trifold {

double logistic(double z);

// What the best model reaches on samples without end.
struct ClickOptimum {
  double auc = 0.5;
  double log_loss = 0;  // natural logarithm
  double bias = 0;      // what is added to every score
};

class ScoreDistribution {
 public:
  struct Empty {};
  static constexpr double kStep = 1.0 / 256;  // of the grid

  ScoreDistribution() { add(0, 1); }  // all mass at 0, the neutral element of `convolve`
  explicit ScoreDistribution(Empty) {}

  // Adds mass at a value, split over the two grid points around it so that the mean is kept.
  void add(double value, double mass);
  // Adds `share` of another one.
  void mix(const ScoreDistribution& other, double share);
  // That of the sum of two independent scores.
  void convolve(const ScoreDistribution& other);

  double mass() const;
  // For labels that are 1 with probability sigmoid(bias + score): the bias that makes `positive_rate` of all
  // labels 1, and what ranking and predicting by the score reach then. The mass must be 1.
  ClickOptimum optimum(double positive_rate) const;

 private:
  double& at(int64_t index);  // grows the grid
  double value(size_t i) const { return static_cast<double>(first_ + static_cast<int64_t>(i)) * kStep; }

  int64_t first_ = 0;  // grid index of masses_[0]
  std::vector<double> masses_;
};

}  // namespace trifold
