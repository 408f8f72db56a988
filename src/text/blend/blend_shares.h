// BlendShares: the shares of several data sets in a blend, which may change from sample to sample. They are given at
// points; from one point to the next they stay, or change in a line, and after the last point they stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trifold {

class BlendShares {
 public:
  // The shares from sample `first` of the blend on.
  struct Point {
    int64_t first = 0;
    std::vector<double> shares;  // [data set], sum 1
  };
  enum class Between { Steps, Lines };

  // Equal shares for all samples; they sum to 1.
  explicit BlendShares(std::span<const double> shares);
  // The first point is at sample 0, and no point is before its predecessor. With several points at one sample the last
  // one counts. There is at least one point.
  BlendShares(std::vector<Point> points, Between between);

  size_t datasets() const { return points_.front().shares.size(); }
  // The share of the first `samples` samples that is due to a data set: the sum of its shares of them.
  double due(size_t dataset, int64_t samples) const;
  // Whether a data set has a share of sample `index`.
  bool takes_part(size_t dataset, int64_t index) const;

 private:
  // The last point at `index` or before.
  size_t point_of(int64_t index) const;
  bool changes(size_t point) const { return between_ == Between::Lines && point + 1 < points_.size(); }

  std::vector<Point> points_;
  Between between_;
  std::vector<double> due_;  // [point][data set] due before the point
};

}  // namespace trifold
