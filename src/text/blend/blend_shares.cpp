#include "text/blend/blend_shares.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

namespace {

// The sum of the shares of the first n samples after a point. With lines the share changes by `slope` per sample.
double sum_of_shares(double share, double slope, int64_t n) {
  const auto count = static_cast<double>(n);
  return share * count + slope * (count * (count - 1) / 2);
}

}  // namespace

BlendShares::BlendShares(std::span<const double> shares)
    : BlendShares({Point{0, {shares.begin(), shares.end()}}}, Between::Steps) {}

BlendShares::BlendShares(std::vector<Point> points, Between between)
    : points_(std::move(points)), between_(between) {
  check(!points_.empty() && points_.front().first == 0, "the shares of a blend begin at its first sample");
  due_.assign(points_.size() * datasets(), 0.0);
  for (size_t p = 1; p < points_.size(); ++p) {
    check(points_[p].first >= points_[p - 1].first && points_[p].shares.size() == datasets(),
          "point {} of the shares of a blend is before its predecessor or has other data sets", p);
    for (size_t k = 0; k < datasets(); ++k) {
      const int64_t length = points_[p].first - points_[p - 1].first;
      const double first = points_[p - 1].shares[k];
      const double slope =
          changes(p - 1) && length > 0 ? (points_[p].shares[k] - first) / static_cast<double>(length) : 0;
      due_[p * datasets() + k] = due_[(p - 1) * datasets() + k] + sum_of_shares(first, slope, length);
    }
  }
}

size_t BlendShares::point_of(int64_t index) const {
  const auto after =
      std::upper_bound(points_.begin(), points_.end(), index,
                       [](int64_t sample, const Point& point) { return sample < point.first; });
  return static_cast<size_t>(after - points_.begin()) - 1;
}

double BlendShares::due(size_t dataset, int64_t samples) const {
  const size_t p = points_.size() == 1 ? 0 : point_of(samples);
  const double share = points_[p].shares[dataset];
  double slope = 0;
  if (changes(p))
    slope = (points_[p + 1].shares[dataset] - share) /
            static_cast<double>(points_[p + 1].first - points_[p].first);
  return due_[p * datasets() + dataset] + sum_of_shares(share, slope, samples - points_[p].first);
}

// A data set whose share reaches 0 at the end of a line still has one before.
bool BlendShares::takes_part(size_t dataset, int64_t index) const {
  const size_t p = points_.size() == 1 ? 0 : point_of(index);
  return points_[p].shares[dataset] > 0 || (changes(p) && points_[p + 1].shares[dataset] > 0);
}

}  // namespace trifold
