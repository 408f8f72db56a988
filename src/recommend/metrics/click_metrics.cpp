#include "recommend/metrics/click_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.h"
#include "recommend/metrics/sortable_score.h"

namespace trifold {

namespace {

// Equal scores of this rank: the bits of the score, and the samples of each label with it, each counting by its weight.
struct Tie {
  int64_t key;
  int64_t clicks, others;
};
constexpr int64_t kTieWords = 3;

// A score is 32 sortable bits and the label; above them is the weight, 1 where samples have none.
constexpr int kScoreBits = 33;
constexpr int kWeightBits = 28;

constexpr int kBucketBits = 16;
constexpr int64_t kBuckets = int64_t{1} << kBucketBits;

int64_t bucket_of(const Tie& tie) { return tie.key >> (32 - kBucketBits); }

// By the bits of the score, least significant digits first, 11 bits at a time: three passes.
void radix_sort(std::vector<uint64_t>& values) {
  constexpr int kDigit = 11;
  constexpr uint64_t kMask = (1U << kDigit) - 1;
  std::vector<uint64_t> other(values.size());
  for (int shift = 0; shift < kScoreBits; shift += kDigit) {
    std::array<size_t, kMask + 1> start{};
    for (const uint64_t value : values) ++start[value >> shift & kMask];
    size_t sum = 0;
    for (size_t& count : start) sum += std::exchange(count, sum);
    for (const uint64_t value : values) other[start[value >> shift & kMask]++] = value;
    values.swap(other);
  }
}

std::vector<Tie> ties_of(std::vector<uint64_t> scores) {
  radix_sort(scores);
  std::vector<Tie> ties;
  for (const uint64_t score : scores) {
    constexpr uint64_t kScoreMask = (uint64_t{1} << kScoreBits) - 1;
    const auto key = static_cast<int64_t>((score & kScoreMask) >> 1);
    if (ties.empty() || ties.back().key != key) ties.push_back({key, 0, 0});
    ((score & 1U) != 0 ? ties.back().clicks : ties.back().others) +=
        static_cast<int64_t>(score >> kScoreBits);
  }
  return ties;
}

Tensor as_tensor(std::span<int64_t> values) {
  return {values.data(), DType::I64, {static_cast<int64_t>(values.size())}};
}

void sum_over(Communicator& ranks, std::span<int64_t> values, Stream& stream) {
  ranks.all_reduce(as_tensor(values), Reduce::Sum, stream);
  stream.synchronize();
}

// The first row for each rank: buckets go to ranks in order, so that each gets about as many rows.
std::vector<int64_t> cut(Communicator& ranks, const std::vector<Tie>& ties, Stream& stream) {
  std::vector<int64_t> histogram(static_cast<size_t>(kBuckets));
  for (const Tie& tie : ties) ++histogram[static_cast<size_t>(bucket_of(tie))];
  std::vector<int64_t> mine = histogram;
  sum_over(ranks, histogram, stream);
  int64_t total = 0;
  for (const int64_t rows : histogram) total += rows;
  std::vector<int64_t> rows(static_cast<size_t>(ranks.size()));
  int64_t before = 0;
  for (size_t b = 0; b < histogram.size(); ++b) {
    if (histogram[b] == 0) continue;
    rows[static_cast<size_t>(before * ranks.size() / total)] += mine[b];
    before += histogram[b];
  }
  return rows;
}

// This rank's range of the scores of all ranks, ascending.
std::vector<Tie> exchange(Communicator& ranks, std::vector<Tie> ties, Stream& stream) {
  if (ranks.size() == 1) return ties;
  const auto size = static_cast<size_t>(ranks.size());
  std::vector<int64_t> sent = cut(ranks, ties, stream);
  std::vector<int64_t> received(size);
  const std::vector<int64_t> one(size, 1);
  ranks.all_to_all(as_tensor(received), as_tensor(sent), one, one, stream);
  stream.synchronize();
  int64_t rows = 0;
  for (const int64_t count : received) rows += count;
  std::vector<Tie> here(static_cast<size_t>(rows));
  const Tensor out{here.data(), DType::I64, {rows, kTieWords}};
  const Tensor in{ties.data(), DType::I64, {std::ssize(ties), kTieWords}};
  ranks.all_to_all(out, in, received, sent, stream);
  stream.synchronize();
  std::stable_sort(here.begin(), here.end(), [](const Tie& a, const Tie& b) { return a.key < b.key; });
  return here;
}

// Over all ranks: twice the number of pairs (other, click) in the right order, where ties count half, and the number of
// samples with each label.
struct Ranking {
  double ranked_twice = 0, clicks = 0, others = 0;
};
Ranking ranking(Communicator& ranks, const std::vector<Tie>& ties, Stream& stream) {
  const auto size = static_cast<size_t>(ranks.size());
  std::vector<int64_t> others(size + 1, 0);  // others of each rank; then the clicks of all ranks
  for (const Tie& tie : ties) {
    others[static_cast<size_t>(ranks.rank())] += tie.others;
    others[size] += tie.clicks;
  }
  sum_over(ranks, others, stream);
  int64_t below = 0;
  for (int r = 0; r < ranks.rank(); ++r) below += others[static_cast<size_t>(r)];
  // Integers below 2^126, as four digits whose sums over 2^31 ranks do not overflow.
  unsigned __int128 ranked = 0;
  for (size_t i = 0; i < ties.size();) {
    int64_t clicks = 0;
    int64_t equal = 0;
    for (const int64_t key = ties[i].key; i < ties.size() && ties[i].key == key; ++i) {
      clicks += ties[i].clicks;
      equal += ties[i].others;
    }
    ranked += static_cast<unsigned __int128>(clicks) * static_cast<uint64_t>(2 * below + equal);
    below += equal;
  }
  std::array<int64_t, 4> digits{};
  for (size_t d = 0; d < digits.size(); ++d)
    digits[d] = static_cast<int64_t>(static_cast<uint64_t>(ranked >> (32 * d)) & 0xffffffff);
  sum_over(ranks, digits, stream);
  Ranking all;
  for (size_t d = digits.size(); d-- > 0;)
    all.ranked_twice = all.ranked_twice * 4294967296.0 + static_cast<double>(digits[d]);
  all.clicks = static_cast<double>(others[size]);
  all.others = static_cast<double>(std::accumulate(others.begin(), others.end() - 1, int64_t{0}));
  return all;
}

double entropy(double rate) { return -rate * std::log(rate) - (1 - rate) * std::log1p(-rate); }

}  // namespace

template <class T>
void ClickMetrics::add_all(const T* logits, const Tensor& labels, const Tensor& weights, int64_t first_sample,
                           const float* sample_weights) {
  const auto* label = labels.as<float>();
  const auto* weight = weights.as<float>();
  for (int64_t i = 0; i < labels.elements(); ++i) {
    if (weight[i] == 0) continue;
    const auto z = static_cast<double>(logits[i]);
    check(std::isfinite(z), "the prediction for sample {} is {}", first_sample + i, z);
    check(label[i] == 0 || label[i] == 1, "the label of sample {} is {}, not 0 or 1", first_sample + i,
          label[i]);
    const bool click = label[i] == 1;
    const bool right = (z > 0) == click;
    const double counts = weighted_ ? static_cast<double>(sample_weights[i]) : 1;
    scores_.push_back(uint64_t{sortable_score(static_cast<float>(z))} << 1 | (click ? 1U : 0U));
    const double tail = std::exp(-std::abs(z));  // for the less likely label: never overflows
    loss_.add(counts * (std::max(click ? -z : z, 0.0) + std::log1p(tail)));
    predicted_.add(counts * ((z >= 0 ? 1 : tail) / (1 + tail)));
    clicks_ += click ? 1 : 0;
    right_ += right ? 1 : 0;
    if (!weighted_) continue;
    sample_weights_.push_back(sample_weights[i]);
    weights_.all.add(counts);
    if (click) weights_.clicks.add(counts);
    if (right) weights_.right.add(counts);
  }
}

void ClickMetrics::add(const Tensor& logits, const Tensor& labels, const Tensor& weights,
                       int64_t first_sample, const Tensor& sample_weights) {
  check(
      logits.elements() == labels.elements() && weights.elements() == labels.elements() &&
          (!weighted_ || sample_weights.elements() == labels.elements()),
      "there are {} predictions, {} labels, {} label weights and {} sample weights: their counts do not match",
      logits.elements(), labels.elements(), weights.elements(), sample_weights.elements());
  dispatch_wide_float(logits.dtype, [&]<class T>(T) {
    add_all(static_cast<const T*>(logits.data), labels, weights, first_sample,
            weighted_ ? sample_weights.as<float>() : nullptr);
  });
}

// The scores of this rank, with weights as whole multiples of the same power of two on all ranks.
std::vector<uint64_t> ClickMetrics::weighed_scores(Communicator& ranks, Stream& stream) {
  std::vector<uint64_t> scores = std::move(scores_);
  if (!weighted_) {
    for (uint64_t& score : scores) score |= uint64_t{1} << kScoreBits;
    return scores;
  }
  double largest = 0;
  for (const float weight : sample_weights_) largest = std::max(largest, static_cast<double>(weight));
  ranks.all_reduce({&largest, DType::F64, {1}}, Reduce::Max, stream);
  stream.synchronize();
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (size_t i = 0; i < scores.size(); ++i) {
    const double units = std::ldexp(static_cast<double>(sample_weights_[i]), kWeightBits - exponent);
    scores[i] |= static_cast<uint64_t>(std::llround(units)) << kScoreBits;
  }
  return scores;
}

ClickScores ClickMetrics::finish(Communicator& ranks, Stream& stream) {
  check(scores_.size() <= std::numeric_limits<uint32_t>::max() / 2,
        "{} samples on one rank are more than 2^31 - 1", scores_.size());
  std::vector<int64_t> sums{std::ssize(scores_), clicks_, right_};
  constexpr size_t kCounts = 3;
  std::vector<ExactSum*> exact{&loss_, &predicted_};
  if (weighted_) exact.insert(exact.end(), {&weights_.all, &weights_.clicks, &weights_.right});
  for (ExactSum* sum : exact) sums.insert(sums.end(), sum->limbs().begin(), sum->limbs().end());
  sum_over(ranks, sums, stream);
  const auto sum_of_all = [&](size_t number) {
    ExactSum sum;
    sum.add_limbs(std::span(sums).subspan(kCounts + number * ExactSum::kLimbs, ExactSum::kLimbs));
    return sum.value();
  };

  ClickScores scores;
  scores.samples = sums[0];
  scores.clicks = sums[1];
  const Ranking pairs =
      ranking(ranks, exchange(ranks, ties_of(weighed_scores(ranks, stream)), stream), stream);
  const auto of_all = [&](size_t weights, int64_t count) {
    return weighted_ ? sum_of_all(2 + weights) : static_cast<double>(count);
  };
  const double samples = of_all(0, sums[0]), clicks = of_all(1, sums[1]), right = of_all(2, sums[2]);
  const double loss = sum_of_all(0), predicted = sum_of_all(1);
  *this = ClickMetrics(weighted_);
  if (scores.samples == 0) return scores;
  scores.log_loss = loss / samples;
  scores.accuracy = right / samples;
  if (weighted_) scores.weight = samples;
  if (scores.clicks > 0) scores.calibration = predicted / clicks;
  if (scores.clicks > 0 && scores.clicks < scores.samples) {
    if (pairs.clicks > 0 && pairs.others > 0)
      scores.auc = pairs.ranked_twice / (2 * pairs.clicks * pairs.others);
    scores.normalised_entropy = scores.log_loss / entropy(clicks / samples);
  }
  return scores;
}

}  // namespace trifold
