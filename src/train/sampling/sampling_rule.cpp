#include "train/sampling/sampling_rule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trifold {

namespace {

// The indices of logits by falling logit, of which only as many are sorted as are asked for: a vocabulary is large, and
// the draw usually ends at one of the first tokens.
class Ranking {
 public:
  explicit Ranking(std::span<const double> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  int64_t at(size_t rank) {
    while (rank >= sorted_) sort_more();
    return order_[rank];
  }

 private:
  void sort_more() {
    const size_t end = std::min(order_.size(), std::max<size_t>(64, 8 * sorted_));
    const auto begin = order_.begin();
    std::partial_sort(begin + static_cast<int64_t>(sorted_), begin + static_cast<int64_t>(end), order_.end(),
                      [&](int64_t a, int64_t b) {
                        const double x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
                        return x > y || (x == y && a < b);
                      });
    sorted_ = end;
  }

  std::span<const double> logits_;
  std::vector<int64_t> order_;
  size_t sorted_ = 0;
};

}  // namespace

int64_t draw_token(std::span<const double> logits, const SamplingRule& rule, double uniform) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (rule.temperature == 0) return largest - logits.begin();
  Ranking ranking(logits);
  const auto weight_of = [&](double logit) { return std::exp((logit - *largest) / rule.temperature); };
  const auto weight = [&](size_t rank) { return weight_of(logits[static_cast<size_t>(ranking.at(rank))]); };

  const bool limited = rule.top_k > 0 && rule.top_k < std::ssize(logits);
  size_t count = limited ? static_cast<size_t>(rule.top_k) : logits.size();
  double kept = 0;
  if (limited)
    for (size_t rank = 0; rank < count; ++rank) kept += weight(rank);
  else
    for (const double logit : logits) kept += weight_of(logit);
  if (rule.top_p < 1 || rule.min_p > 0) {
    // The shortest prefix of the ranking whose probability reaches top_p, without tokens below min_p.
    const double wanted = rule.top_p < 1 ? rule.top_p * kept : kept;
    const size_t most = count;
    kept = 0;
    for (count = 0; count < most && kept < wanted; ++count) {
      const double next = weight(count);
      if (next < rule.min_p) break;
      kept += next;
    }
  }
  double left = uniform * kept;
  for (size_t rank = 0; rank + 1 < count; ++rank) {
    left -= weight(rank);
    if (left < 0) return ranking.at(rank);
  }
  return ranking.at(count == 0 ? 0 : count - 1);
}

void penalise_repetition(std::span<double> logits, std::span<const int32_t> tokens, double penalty) {
  if (penalty == 1) return;
  std::vector<bool> seen(logits.size());
  for (const int32_t token : tokens) {
    const auto id = static_cast<size_t>(token);
    if (id >= seen.size() || seen[id]) continue;
    seen[id] = true;
    logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
  }
}

}  // namespace trifold
