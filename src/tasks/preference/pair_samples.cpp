#include "tasks/preference/pair_samples.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "data/permutation.h"

namespace trifold {

std::string PreferencePairs::fingerprint() const {
  uint64_t hash = means ? 1 : 0;
  const auto add = [&hash](const void* data, size_t bytes) {
    const PhiloxKey key = philox_key(hash, std::string_view(static_cast<const char*>(data), bytes));
    hash = uint64_t{key.hi} << 32 | key.lo;
  };
  for (const EncodedPair& pair : pairs)
    for (const EncodedChat& answer : pair) {
      add(answer.tokens.data(), answer.tokens.size() * sizeof(int32_t));
      add(answer.learned.data(), answer.learned.size());
    }
  add(&seq_length, sizeof seq_length);
  return fmt::format("{} pairs {:016x}", pairs.size(), hash);
}

int64_t counted_labels(const EncodedChat& answer) {
  return answer.learned.empty() ? 0 : std::count(answer.learned.begin() + 1, answer.learned.end(), 1);
}

void PairValues::set(std::vector<double> values) {
  const std::lock_guard lock(mutex_);
  if (values_.empty()) values_ = std::move(values);
}

bool PairValues::known() const {
  const std::lock_guard lock(mutex_);
  return !values_.empty();
}

double PairValues::of(int64_t sample) const {
  const std::lock_guard lock(mutex_);
  return values_.empty() ? 0 : values_.at(static_cast<size_t>(sample));
}

PairSamples::PairSamples(std::shared_ptr<const PreferencePairs> pairs,
                         std::shared_ptr<const PairValues> values, int64_t passes, bool shuffled,
                         uint64_t seed)
    : pairs_(std::move(pairs)),
      values_(std::move(values)),
      passes_(passes),
      shuffled_(shuffled),
      key_(philox_key(seed, "order of pairs")),
      fingerprint_(pairs_->fingerprint() + ", " + pairs_->goal) {
  check(!pairs_->pairs.empty(), "there are no pairs");
  for (const EncodedPair& pair : pairs_->pairs)
    for (const EncodedChat& answer : pair) {
      check(counted_labels(answer) > 0, "an answer has no token that counts");
      check(std::ssize(answer.tokens) <= pairs_->seq_length,
            "an answer with its prompt has {} tokens, more than {}", answer.tokens.size(),
            pairs_->seq_length);
    }
}

void PairSamples::open_at(const std::string& bookmark) const {
  if (bookmark != fingerprint_)
    bad_input(
        "the checkpoint was trained on {}, but --train-data makes {} now: give the same file, tokenizer, chat template "
        "and options (--seq-length, --truncation-mode, --dpo-*), or start a new run from its weights",
        bookmark, fingerprint_);
}

int64_t PairSamples::place_of(int64_t index) const {
  const int64_t count = std::ssize(pairs_->pairs);
  const int64_t pair = index / 2;
  int64_t place = pair % count;
  if (shuffled_) {
    const auto words = philox(key_, static_cast<uint64_t>(pair / count));
    place = Permutation(philox_key(uint64_t{words[0]} << 32 | words[1], "order of a pass"), count)(place);
  }
  return 2 * place + index % 2;
}

void PairSamples::read_sample(Batch& batch, int64_t b, int64_t place) const {
  const EncodedChat& answer = pairs_->pairs[static_cast<size_t>(place / 2)][static_cast<size_t>(place % 2)];
  const int64_t length = pairs_->seq_length, row = b * length, used = std::ssize(answer.tokens);
  int32_t* const tokens = batch.tokens.as<int32_t>() + row;
  int32_t* const labels = batch.labels.as<int32_t>() + row;
  int32_t* const positions = batch.positions.as<int32_t>() + row;
  float* const weights = batch.loss_weight.as<float>() + row;
  std::fill(tokens, tokens + length, pairs_->pad);
  std::fill(labels, labels + length, pairs_->pad);
  std::fill(weights, weights + length, 0.0F);
  std::iota(positions, positions + length, 0);
  std::copy(answer.tokens.begin(), answer.tokens.end(), tokens);
  std::copy(answer.tokens.begin() + 1, answer.tokens.end(), labels);
  const float weight = pairs_->means ? 1.0F / static_cast<float>(counted_labels(answer)) : 1.0F;
  std::transform(answer.learned.begin() + 1, answer.learned.end(), weights,
                 [weight](uint8_t learned) { return learned != 0 ? weight : 0.0F; });
  if (batch.padding.data != nullptr) {
    int32_t* const padding = batch.padding.as<int32_t>() + row;
    std::fill(padding, padding + used, 0);
    std::fill(padding + used, padding + length, 1);
  }
  batch.lengths.as<int32_t>()[b] = static_cast<int32_t>(used);
  batch.pair_weight.as<float>()[b] = 1;
  batch.sample_values.as<double>()[b] = values_->of(place);
}

void PairSamples::read(Batch& batch, int64_t first_sample) const {
  check(batch.seq_length() == pairs_->seq_length && batch.sample_values.data != nullptr,
        "the batch is {}, but samples have {} positions", to_string(batch.tokens.shape), pairs_->seq_length);
  check(0 <= first_sample && first_sample + batch.samples() <= samples(),
        "samples [{}, {}) were asked for, the data source has {}", first_sample,
        first_sample + batch.samples(), samples());
  batch.first_sample = first_sample;
  for (int64_t b = 0; b < batch.samples(); ++b) read_sample(batch, b, place_of(first_sample + b));
}

}  // namespace trifold
