#include "tasks/task_samples.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "data/permutation.h"

namespace trifold {

TaskSample join_texts(std::span<const int32_t> first, const std::span<const int32_t>* second,
                      const BertTokens& special) {
  TaskSample sample;
  sample.tokens.push_back(special.cls);
  sample.tokens.insert(sample.tokens.end(), first.begin(), first.end());
  sample.tokens.push_back(special.sep);
  sample.second = static_cast<int32_t>(sample.tokens.size());
  if (second != nullptr) {
    sample.tokens.insert(sample.tokens.end(), second->begin(), second->end());
    sample.tokens.push_back(special.sep);
  }
  return sample;
}

namespace {

// Shortens two texts to `room` tokens together, as transformers' `longest_first` does: only the longer one if that is
// enough; otherwise each gets half, and the longer one (of equal ones the second) the odd token.
void cut_pair(std::vector<int32_t>& first, std::vector<int32_t>& second, size_t room) {
  if (first.size() + second.size() <= room) return;
  std::vector<int32_t>& longer = first.size() > second.size() ? first : second;
  std::vector<int32_t>& shorter = &longer == &first ? second : first;
  if (2 * shorter.size() <= room) return longer.resize(room - shorter.size());
  longer.resize(room - room / 2);
  shorter.resize(room / 2);
}

// The class of a label: by its name, or by its number if classes have the library's names LABEL_0, LABEL_1, ...
std::optional<int32_t> class_of(const std::string& label, const std::vector<std::string>& classes) {
  for (const std::string& name : {label, "LABEL_" + label})
    if (const auto found = std::find(classes.begin(), classes.end(), name); found != classes.end())
      return static_cast<int32_t>(found - classes.begin());
  return std::nullopt;
}

}  // namespace

std::vector<TaskSample> class_samples(const std::vector<LabeledText>& texts,
                                      const std::vector<std::string>& classes, const Tokenizer& tokenizer,
                                      const BertTokens& special, int64_t seq_length) {
  std::vector<TaskSample> samples;
  std::vector<int32_t> first, second;
  for (const LabeledText& text : texts) {
    if (seq_length < (text.other ? 3 : 2))
      bad_input("--seq-length {} leaves no room for a text: give at least 8", seq_length);
    const std::optional<int32_t> label = class_of(text.label, classes);
    if (!label)
      bad_input("the label '{}' is not one of the classes: {}", text.label, fmt::join(classes, ", "));
    first.clear();
    second.clear();
    tokenizer.encode(text.text, first);
    if (text.other) tokenizer.encode(*text.other, second);
    cut_pair(first, second, static_cast<size_t>(std::max<int64_t>(0, seq_length - (text.other ? 3 : 2))));
    const std::span<const int32_t> other = second;
    samples.push_back(join_texts(first, text.other ? &other : nullptr, special));
    samples.back().label = *label;
  }
  return samples;
}

namespace {

std::string fingerprint(const std::vector<TaskSample>& samples) {
  uint64_t hash = 0;
  for (const TaskSample& sample : samples) {
    std::string text(reinterpret_cast<const char*>(sample.tokens.data()),
                     sample.tokens.size() * sizeof(int32_t));
    text += fmt::format(" {} {} {} {}", sample.second, sample.label, sample.begin, sample.end);
    const PhiloxKey key = philox_key(hash, text);
    hash = uint64_t{key.hi} << 32 | key.lo;
  }
  return fmt::format("{} samples {:016x}", samples.size(), hash);
}

}  // namespace

TaskSamples::TaskSamples(std::vector<TaskSample> samples, int32_t pad, int64_t seq_length, int64_t passes,
                         bool shuffled, uint64_t seed)
    : samples_(std::move(samples)),
      pad_(pad),
      seq_length_(seq_length),
      passes_(passes),
      shuffled_(shuffled),
      key_(philox_key(seed, "order of task samples")) {
  check(!samples_.empty(), "there are no samples");
  for (const TaskSample& sample : samples_)
    check(static_cast<int64_t>(sample.tokens.size()) <= seq_length_, "a sample has {} tokens, more than {}",
          sample.tokens.size(), seq_length_);
  fingerprint_ = fingerprint(samples_);
}

void TaskSamples::open_at(const std::string& bookmark) const {
  if (bookmark != fingerprint_)
    bad_input(
        "the checkpoint was trained on other samples than --train-data makes now: give the same file and "
        "options (--seq-length, --doc-stride, --max-query-length), or start a new run from its weights");
}

const TaskSample& TaskSamples::sample(int64_t index) const {
  const auto count = static_cast<int64_t>(samples_.size());
  int64_t place = index % count;
  if (shuffled_) {
    const auto words = philox(key_, static_cast<uint64_t>(index / count));
    place = Permutation(philox_key(uint64_t{words[0]} << 32 | words[1], "order of a pass"), count)(place);
  }
  return samples_[static_cast<size_t>(place)];
}

void TaskSamples::read(Batch& batch, int64_t first_sample) const {
  check(batch.seq_length() == seq_length_ && batch.token_types.data != nullptr,
        "the batch is {}, but samples have {} positions", to_string(batch.tokens.shape), seq_length_);
  check(0 <= first_sample && first_sample + batch.samples() <= samples(),
        "samples [{}, {}) were asked for, the data source has {}", first_sample,
        first_sample + batch.samples(), samples());
  batch.first_sample = first_sample;
  std::fill_n(batch.labels.as<int32_t>(), batch.labels.elements(), 0);
  std::fill_n(batch.loss_weight.as<float>(), batch.loss_weight.elements(), 0.0F);
  for (int64_t b = 0; b < batch.samples(); ++b) {
    const TaskSample& from = sample(first_sample + b);
    const auto length = static_cast<int64_t>(from.tokens.size());
    int32_t* tokens = batch.tokens.as<int32_t>() + b * seq_length_;
    int32_t* types = batch.token_types.as<int32_t>() + b * seq_length_;
    std::copy(from.tokens.begin(), from.tokens.end(), tokens);
    std::fill(tokens + length, tokens + seq_length_, pad_);
    std::fill(types, types + seq_length_, 0);
    std::fill(types + from.second, types + length, 1);
    int32_t* positions = batch.positions.as<int32_t>() + b * seq_length_;
    std::iota(positions, positions + seq_length_, 0);
    batch.lengths.as<int32_t>()[b] = static_cast<int32_t>(length);
    batch.pair_labels.as<int32_t>()[b] = from.label;
    batch.pair_weight.as<float>()[b] = 1;
    batch.answer_begin.as<int32_t>()[b] = from.begin;
    batch.answer_end.as<int32_t>()[b] = from.end;
  }
}

}  // namespace trifold
