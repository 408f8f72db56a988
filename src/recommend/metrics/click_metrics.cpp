#include "recommend/metrics/click_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"
#include "recommend/metrics/sortable_score.h"

namespace trifold {

namespace {

// Equal scores of this rank: the bits of the score, and the number of samples of each label with it.
struct Tie {
  int64_t key;
  int64_t counts;  // clicks << 32 | others
};

constexpr int kBucketBits = 16;
constexpr int64_t kBuckets = int64_t{1} << kBucketBits;

int64_t bucket_of(const Tie& tie) { return tie.key >> (32 - kBucketBits); }
int64_t clicks_of(const Tie& tie) { return tie.counts >> 32; }
int64_t others_of(const Tie& tie) { return tie.counts & 0xffffffff; }

// Least significant digits first, 11 bits at a time: three passes over the 33 bits.
void radix_sort(std::vector<uint64_t>& values) {
  constexpr int kDigit = 11;
  constexpr uint64_t kMask = (1U << kDigit) - 1;
  std::vector<uint64_t> other(values.size());
  for (int shift = 0; shift < 33; shift += kDigit) {
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
    const auto key = static_cast<int64_t>(score >> 1);
    if (ties.empty() || ties.back().key != key) ties.push_back({key, 0});
    ties.back().counts += (score & 1U) != 0 ? int64_t{1} << 32 : 1;
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
  const Tensor out{here.data(), DType::I64, {rows, 2}};
  const Tensor in{ties.data(), DType::I64, {std::ssize(ties), 2}};
  ranks.all_to_all(out, in, received, sent, stream);
  stream.synchronize();
  std::stable_sort(here.begin(), here.end(), [](const Tie& a, const Tie& b) { return a.key < b.key; });
  return here;
}

// Twice the number of pairs (other, click) in the right order (ties count half) over the ranges of all ranks.
double ranked_twice(Communicator& ranks, const std::vector<Tie>& ties, Stream& stream) {
  const auto size = static_cast<size_t>(ranks.size());
  std::vector<int64_t> others(size, 0);
  for (const Tie& tie : ties) others[static_cast<size_t>(ranks.rank())] += others_of(tie);
  sum_over(ranks, others, stream);
  int64_t below = 0;
  for (int r = 0; r < ranks.rank(); ++r) below += others[static_cast<size_t>(r)];
  // Integers below 2^126, as four digits whose sums over 2^31 ranks do not overflow.
  unsigned __int128 ranked = 0;
  for (size_t i = 0; i < ties.size();) {
    int64_t clicks = 0;
    int64_t equal = 0;
    for (const int64_t key = ties[i].key; i < ties.size() && ties[i].key == key; ++i) {
      clicks += clicks_of(ties[i]);
      equal += others_of(ties[i]);
    }
    ranked += static_cast<unsigned __int128>(clicks) * static_cast<uint64_t>(2 * below + equal);
    below += equal;
  }
  std::array<int64_t, 4> digits{};
  for (size_t d = 0; d < digits.size(); ++d)
    digits[d] = static_cast<int64_t>(static_cast<uint64_t>(ranked >> (32 * d)) & 0xffffffff);
  sum_over(ranks, digits, stream);
  double sum = 0;
  for (size_t d = digits.size(); d-- > 0;) sum = sum * 4294967296.0 + static_cast<double>(digits[d]);
  return sum;
}

double entropy(double rate) { return -rate * std::log(rate) - (1 - rate) * std::log1p(-rate); }

}  // namespace

template <class T>
void ClickMetrics::add_all(const T* logits, const Tensor& labels, const Tensor& weights,
                           int64_t first_sample) {
  const auto* label = labels.as<float>();
  const auto* weight = weights.as<float>();
  for (int64_t i = 0; i < labels.elements(); ++i) {
    if (weight[i] == 0) continue;
    const auto z = static_cast<double>(logits[i]);
    check(std::isfinite(z), "the prediction for sample {} is {}", first_sample + i, z);
    check(label[i] == 0 || label[i] == 1, "the label of sample {} is {}, not 0 or 1", first_sample + i,
          label[i]);
    const bool click = label[i] == 1;
    scores_.push_back(uint64_t{sortable_score(static_cast<float>(z))} << 1 | (click ? 1U : 0U));
    const double tail = std::exp(-std::abs(z));  // of the less likely label: never overflows
    loss_.add(std::max(click ? -z : z, 0.0) + std::log1p(tail));
    predicted_.add((z >= 0 ? 1 : tail) / (1 + tail));
    clicks_ += click ? 1 : 0;
    right_ += (z > 0) == click ? 1 : 0;
  }
}

void ClickMetrics::add(const Tensor& logits, const Tensor& labels, const Tensor& weights,
                       int64_t first_sample) {
  check(logits.elements() == labels.elements() && weights.elements() == labels.elements(),
        "{} predictions, {} labels and {} weights do not belong together", logits.elements(),
        labels.elements(), weights.elements());
  dispatch_wide_float(logits.dtype, [&]<class T>(T) {
    add_all(static_cast<const T*>(logits.data), labels, weights, first_sample);
  });
}

ClickScores ClickMetrics::finish(Communicator& ranks, Stream& stream) {
  check(scores_.size() <= std::numeric_limits<uint32_t>::max() / 2, "{} samples are too many for one rank",
        scores_.size());
  std::vector<int64_t> sums{std::ssize(scores_), clicks_, right_};
  sums.insert(sums.end(), loss_.limbs().begin(), loss_.limbs().end());
  sums.insert(sums.end(), predicted_.limbs().begin(), predicted_.limbs().end());
  sum_over(ranks, sums, stream);
  ExactSum loss;
  loss.add_limbs(std::span(sums).subspan(3, ExactSum::kLimbs));
  ExactSum predicted;
  predicted.add_limbs(std::span(sums).subspan(3 + ExactSum::kLimbs, ExactSum::kLimbs));

  ClickScores scores{sums[0], sums[1], {}, 0, {}, 0, {}};
  const double pairs = ranked_twice(ranks, exchange(ranks, ties_of(std::move(scores_)), stream), stream);
  *this = ClickMetrics();
  if (scores.samples == 0) return scores;
  const auto samples = static_cast<double>(scores.samples);
  const auto clicks = static_cast<double>(scores.clicks);
  scores.log_loss = loss.value() / samples;
  scores.accuracy = static_cast<double>(sums[2]) / samples;
  if (scores.clicks > 0) scores.calibration = predicted.value() / clicks;
  if (scores.clicks > 0 && scores.clicks < scores.samples) {
    scores.auc = pairs / (2 * clicks * (samples - clicks));
    scores.normalised_entropy = scores.log_loss / entropy(clicks / samples);
  }
  return scores;
}

}  // namespace trifold
