#include "recommend/metrics/group_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/exact_sum.h"
#include "recommend/metrics/sortable_score.h"

namespace trifold {

namespace {

using GroupSample = GroupMetrics::Sample;

GroupSample packed(uint64_t group, double logit, bool click) {
  return {group, uint64_t{sortable_score(static_cast<float>(logit))} << 1 | (click ? 1 : 0)};
}
uint64_t score_of(const GroupSample& sample) { return sample.score >> 1; }
bool is_click(const GroupSample& sample) { return (sample.score & 1) != 0; }

Tensor rows_of(std::span<int64_t> values) {
  return {values.data(), DType::I64, {static_cast<int64_t>(values.size())}};
}
Tensor rows_of(std::vector<GroupSample>& samples) {
  return {samples.data(), DType::I64, {std::ssize(samples), sizeof(GroupSample) / sizeof(int64_t)}};
}

// Groups are dealt to the ranks; this rank's, ascending.
std::vector<GroupSample> gather_groups(Communicator& ranks, std::vector<GroupSample> samples,
                                       Stream& stream) {
  const auto size = static_cast<uint64_t>(ranks.size());
  const auto rank_of = [size](const GroupSample& sample) { return sample.group % size; };
  std::sort(samples.begin(), samples.end(), [&](const GroupSample& a, const GroupSample& b) {
    return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : a < b;
  });
  if (size == 1) return samples;
  std::vector<int64_t> sent(static_cast<size_t>(size)), received(sent.size());
  for (const GroupSample& sample : samples) ++sent[rank_of(sample)];
  const std::vector<int64_t> one(sent.size(), 1);
  ranks.all_to_all(rows_of(received), rows_of(sent), one, one, stream);
  stream.synchronize();
  int64_t count = 0;
  for (const int64_t rows : received) count += rows;
  std::vector<GroupSample> here(static_cast<size_t>(count));
  ranks.all_to_all(rows_of(here), rows_of(samples), received, sent, stream);
  stream.synchronize();
  std::sort(here.begin(), here.end());
  return here;
}

// Samples of one group with equal scores.
struct EqualScores {
  int64_t clicks = 0;
  int64_t others = 0;
  int64_t samples() const { return clicks + others; }
};

// The equal scores of a group, whose samples are ascending, from the highest score down.
void rank_group(std::span<const GroupSample> samples, std::vector<EqualScores>& ranking) {
  ranking.clear();
  for (size_t i = samples.size(); i-- > 0;) {
    if (i + 1 == samples.size() || score_of(samples[i]) != score_of(samples[i + 1])) ranking.emplace_back();
    ++(is_click(samples[i]) ? ranking.back().clicks : ranking.back().others);
  }
}

EqualScores total_of(std::span<const EqualScores> ranking) {
  EqualScores total;
  for (const EqualScores& equal : ranking) {
    total.clicks += equal.clicks;
    total.others += equal.others;
  }
  return total;
}

// nullopt if all samples have the same label.
std::optional<double> auc_of(std::span<const EqualScores> ranking) {
  const EqualScores total = total_of(ranking);
  if (total.clicks == 0 || total.others == 0) return std::nullopt;
  int64_t below = total.others;  // unclicked samples with a lower score
  int64_t ranked = 0;            // twice the pairs in the right order
  for (const EqualScores& equal : ranking) {
    below -= equal.others;
    ranked += equal.clicks * (2 * below + equal.others);
  }
  return static_cast<double>(ranked) /
         (2.0 * static_cast<double>(total.clicks) * static_cast<double>(total.others));
}

// discount(n): the sum of 1 / log2(1 + place) over places 1 ... n.
class Discounts {
 public:
  double operator()(int64_t places) {
    while (std::ssize(sums_) <= places)
      sums_.push_back(sums_.back() + 1 / std::log2(static_cast<double>(sums_.size()) + 1));
    return sums_[static_cast<size_t>(places)];
  }

 private:
  std::vector<double> sums_{0};
};

// The ranking must have a click.
double ndcg_of(std::span<const EqualScores> ranking, int64_t k, Discounts& discount) {
  double gain = 0;
  int64_t before = 0;
  for (const EqualScores& equal : ranking) {
    if (before >= k) break;
    const int64_t end = std::min(k, before + equal.samples());
    gain += static_cast<double>(equal.clicks) / static_cast<double>(equal.samples()) *
            (discount(end) - discount(before));
    before += equal.samples();
  }
  return gain / discount(std::min(k, total_of(ranking).clicks));
}

// The probability of a click in the first k places.
double hit_of(std::span<const EqualScores> ranking, int64_t k) {
  for (const EqualScores& equal : ranking) {
    const int64_t taken = std::min(k, equal.samples());
    if (equal.clicks > 0) {  // the highest score with clicks: `taken` of its samples are drawn
      if (taken > equal.others) return 1;
      double miss = 1;
      for (int64_t i = 0; i < taken; ++i)
        miss *= static_cast<double>(equal.others - i) / static_cast<double>(equal.samples() - i);
      return 1 - miss;
    }
    if ((k -= taken) == 0) break;
  }
  return 0;
}

// Sums over groups, first of this rank, then of all ranks.
struct GroupSums {
  explicit GroupSums(size_t places) : ndcg(places), hits(places) {}

  int64_t groups = 0, samples = 0, clicked_groups = 0;
  ExactSum auc;  // weighted by samples
  std::vector<ExactSum> ndcg, hits;

  void sum_over(Communicator& ranks, Stream& stream) {
    std::vector<int64_t> all{groups, samples, clicked_groups};
    const size_t counts = all.size();
    std::vector<ExactSum*> sums{&auc};
    for (ExactSum& sum : ndcg) sums.push_back(&sum);
    for (ExactSum& sum : hits) sums.push_back(&sum);
    for (ExactSum* sum : sums) all.insert(all.end(), sum->limbs().begin(), sum->limbs().end());
    ranks.all_reduce(rows_of(all), Reduce::Sum, stream);
    stream.synchronize();
    groups = all[0];
    samples = all[1];
    clicked_groups = all[2];
    for (size_t i = 0; i < sums.size(); ++i) {
      *sums[i] = ExactSum();
      sums[i]->add_limbs(std::span(all).subspan(counts + i * ExactSum::kLimbs, ExactSum::kLimbs));
    }
  }
};

}  // namespace

void GroupMetrics::add(const Tensor& logits, const Tensor& labels, const Tensor& weights,
                       std::span<const uint64_t> groups) {
  const int64_t count = labels.elements();
  check(logits.elements() == count && weights.elements() == count && std::ssize(groups) == count,
        "there are {} predictions, {} labels, {} weights and {} groups: their counts do not match",
        logits.elements(), count, weights.elements(), groups.size());
  const auto* label = labels.as<float>();
  const auto* weight = weights.as<float>();
  dispatch_wide_float(logits.dtype, [&]<class T>(T) {
    const auto* logit = static_cast<const T*>(logits.data);
    for (int64_t i = 0; i < count; ++i)
      if (const uint64_t group = groups[static_cast<size_t>(i)]; weight[i] != 0 && group != kNoGroup)
        samples_.push_back(packed(group, logit[i], label[i] == 1));
  });
}

GroupScores GroupMetrics::finish(Communicator& ranks, Stream& stream) {
  const std::vector<GroupSample> samples = gather_groups(ranks, std::move(samples_), stream);
  samples_.clear();
  GroupSums sums(places_.size());
  Discounts discount;
  std::vector<EqualScores> ranking;
  for (size_t begin = 0; begin < samples.size();) {
    size_t end = begin;
    while (end < samples.size() && samples[end].group == samples[begin].group) ++end;
    rank_group(std::span(samples).subspan(begin, end - begin), ranking);
    const auto count = static_cast<int64_t>(end - begin);
    begin = end;
    if (const auto auc = auc_of(ranking)) {
      sums.auc.add(*auc * static_cast<double>(count));
      ++sums.groups;
      sums.samples += count;
    }
    if (total_of(ranking).clicks == 0) continue;
    ++sums.clicked_groups;
    for (size_t p = 0; p < places_.size(); ++p) {
      sums.ndcg[p].add(ndcg_of(ranking, places_[p], discount));
      sums.hits[p].add(hit_of(ranking, places_[p]));
    }
  }
  sums.sum_over(ranks, stream);

  GroupScores scores{{}, sums.groups, sums.samples, sums.clicked_groups, {}};
  if (scores.groups > 0) scores.gauc = sums.auc.value() / static_cast<double>(scores.samples);
  for (size_t p = 0; p < places_.size(); ++p) {
    scores.top.push_back({places_[p], std::nullopt, std::nullopt});
    TopScores& top = scores.top.back();
    if (sums.clicked_groups == 0) continue;
    top.ndcg = sums.ndcg[p].value() / static_cast<double>(sums.clicked_groups);
    top.hit_rate = sums.hits[p].value() / static_cast<double>(sums.clicked_groups);
  }
  return scores;
}

}  // namespace trifold
