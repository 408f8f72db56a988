#include "train/group_auc.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/error.h"
#include "core/exact_sum.h"
#include "train/sortable_score.h"

namespace trifold {

namespace {

constexpr int kGroupShift = 33;  // a group has 31 bits, a score 32, a label 1

int64_t packed(int32_t group, double logit, bool click) {
  return static_cast<int64_t>(static_cast<uint64_t>(group) << kGroupShift) |
         int64_t{sortable_score(static_cast<float>(logit))} << 1 | (click ? 1 : 0);
}
int64_t group_of(int64_t sample) {  // 31 bits, of which the highest is the sign of `sample`
  return static_cast<int64_t>(static_cast<uint64_t>(sample) >> kGroupShift);
}
int64_t score_of(int64_t sample) { return sample >> 1; }  // and the group's, which are equal within it
bool is_click(int64_t sample) { return (sample & 1) != 0; }

Tensor rows_of(std::span<int64_t> values) {
  return {values.data(), DType::I64, {static_cast<int64_t>(values.size())}};
}

// Groups go to ranks in turn; this rank's, ascending.
std::vector<int64_t> gather_groups(Communicator& ranks, std::vector<int64_t> samples, Stream& stream) {
  const int64_t size = ranks.size();
  const auto rank_of = [size](int64_t sample) { return group_of(sample) % size; };
  std::sort(samples.begin(), samples.end(),
            [&](int64_t a, int64_t b) { return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : a < b; });
  if (size == 1) return samples;
  std::vector<int64_t> sent(static_cast<size_t>(size)), received(sent.size());
  for (const int64_t sample : samples) ++sent[static_cast<size_t>(rank_of(sample))];
  const std::vector<int64_t> one(sent.size(), 1);
  ranks.all_to_all(rows_of(received), rows_of(sent), one, one, stream);
  stream.synchronize();
  int64_t count = 0;
  for (const int64_t rows : received) count += rows;
  std::vector<int64_t> here(static_cast<size_t>(count));
  ranks.all_to_all(rows_of(here), rows_of(samples), received, sent, stream);
  stream.synchronize();
  std::sort(here.begin(), here.end());
  return here;
}

// The AUC of one group's samples, ascending; nothing where they all have one label.
std::optional<double> auc_of(std::span<const int64_t> samples) {
  int64_t below = 0;   // unclicked samples with a lower score
  int64_t ranked = 0;  // twice the pairs in the right order
  int64_t clicks = 0;
  for (size_t i = 0; i < samples.size();) {
    int64_t equal_clicks = 0, equal_others = 0;
    const int64_t score = score_of(samples[i]);
    for (; i < samples.size() && score_of(samples[i]) == score; ++i)
      ++(is_click(samples[i]) ? equal_clicks : equal_others);
    ranked += equal_clicks * (2 * below + equal_others);
    below += equal_others;
    clicks += equal_clicks;
  }
  if (clicks == 0 || below == 0) return std::nullopt;
  return static_cast<double>(ranked) / (2.0 * static_cast<double>(clicks) * static_cast<double>(below));
}

}  // namespace

void GroupAuc::add(const Tensor& logits, const Tensor& labels, const Tensor& weights, const Tensor& lengths,
                   const Tensor& ids) {
  const int64_t count = labels.elements();
  check(logits.elements() == count && weights.elements() == count && lengths.elements() == count,
        "{} predictions, {} labels, {} weights and {} bags do not belong together", logits.elements(), count,
        weights.elements(), lengths.elements());
  const auto* label = labels.as<float>();
  const auto* weight = weights.as<float>();
  const auto* length = lengths.as<int32_t>();
  const auto* id = ids.as<int32_t>();
  dispatch_wide_float(logits.dtype, [&]<class T>(T) {
    const auto* logit = static_cast<const T*>(logits.data);
    for (int64_t i = 0; i < count; id += length[i++])
      if (weight[i] != 0 && length[i] > 0) samples_.push_back(packed(*id, logit[i], label[i] == 1));
  });
}

GroupScores GroupAuc::finish(Communicator& ranks, Stream& stream) {
  const std::vector<int64_t> samples = gather_groups(ranks, std::move(samples_), stream);
  samples_.clear();
  ExactSum weighted;
  std::vector<int64_t> sums{0, 0};
  for (size_t begin = 0; begin < samples.size();) {
    size_t end = begin;
    while (end < samples.size() && group_of(samples[end]) == group_of(samples[begin])) ++end;
    const auto count = static_cast<int64_t>(end - begin);
    if (const auto auc = auc_of(std::span(samples).subspan(begin, end - begin))) {
      weighted.add(*auc * static_cast<double>(count));
      ++sums[0];
      sums[1] += count;
    }
    begin = end;
  }
  sums.insert(sums.end(), weighted.limbs().begin(), weighted.limbs().end());
  ranks.all_reduce(rows_of(sums), Reduce::Sum, stream);
  stream.synchronize();
  ExactSum total;
  total.add_limbs(std::span(sums).subspan(2, ExactSum::kLimbs));
  GroupScores scores{{}, sums[0], sums[1]};
  if (scores.groups > 0) scores.gauc = total.value() / static_cast<double>(scores.samples);
  return scores;
}

}  // namespace trifold
