#include "text/samples.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

BlendedSamples::BlendedSamples(std::vector<std::unique_ptr<Samples>> parts, BlendIndices blend)
    : parts_(std::move(parts)), blend_(std::move(blend)) {
  std::vector<int64_t> needed(parts_.size(), 0);
  for (size_t i = 0; i < blend_.sample.size(); ++i) {
    int64_t& count = needed[static_cast<size_t>(blend_.dataset[i])];
    count = std::max(count, blend_.sample[i] + 1);
  }
  for (size_t k = 0; k < parts_.size(); ++k)
    check(needed[k] <= parts_[k]->count(), "the blend needs {} samples of data set {}, which has {}",
          needed[k], k, parts_[k]->count());
}

void BlendedSamples::read(int64_t index, std::span<int32_t> out) const {
  const auto i = static_cast<size_t>(index);
  parts_[static_cast<size_t>(blend_.dataset[i])]->read(blend_.sample[i], out);
}

// The first sample of a list that is used at `index` or later; nullopt if none is.
std::optional<int64_t> BlendedSamples::next_of(size_t part, int64_t index) const {
  const auto at = blend_.dataset.begin() + std::min<int64_t>(index, std::ssize(blend_.dataset));
  const auto next = std::find(at, blend_.dataset.end(), static_cast<int16_t>(part));
  if (next == blend_.dataset.end()) return std::nullopt;
  return blend_.sample[static_cast<size_t>(next - blend_.dataset.begin())];
}

bool BlendedSamples::make_ready(int64_t index, std::chrono::milliseconds patience) const {
  bool ready = true;
  for (size_t k = 0; k < parts_.size(); ++k)
    if (const auto next = next_of(k, index))
      ready &= parts_[k]->make_ready(*next, ready ? patience : std::chrono::milliseconds(0));
  return ready;
}

std::string BlendedSamples::bookmark(int64_t index) const {
  std::vector<std::string> marks(parts_.size());
  bool any = false;
  for (size_t k = 0; k < parts_.size(); ++k) {
    int64_t place = 0;
    // After the last use of a list, a longer run would continue after that sample.
    const auto last = std::find(blend_.dataset.rbegin(), blend_.dataset.rend(), static_cast<int16_t>(k));
    if (const auto next = next_of(k, index))
      place = *next;
    else if (last != blend_.dataset.rend())
      place = blend_.sample[static_cast<size_t>(blend_.dataset.rend() - last) - 1] + 1;
    marks[k] = parts_[k]->bookmark(place);
    any = any || !marks[k].empty();
  }
  return any ? json_text(nlohmann::json(marks)) : "";
}

void BlendedSamples::open_at(const std::string& bookmark) const {
  const nlohmann::json marks = parse_json(bookmark, "the checkpoint's place in --data-path");
  if (!marks.is_array() || marks.size() != parts_.size())
    bad_input("--data-path names {} paths, the checkpoint was trained on others", parts_.size());
  for (size_t k = 0; k < parts_.size(); ++k) {
    check(marks[k].is_string(), "the checkpoint's place in path {} of --data-path cannot be read", k + 1);
    const auto mark = marks[k].get<std::string>();
    if (!mark.empty()) parts_[k]->open_at(mark);
  }
}

SampleSource::SampleSource(std::unique_ptr<Samples> samples, int64_t seq_length,
                           const DocumentRules& documents)
    : samples_(std::move(samples)), seq_length_(seq_length), documents_(documents) {
  const bool any = documents.mask_loss || documents.restart_positions || documents.separate_attention;
  check(!any || documents.end, "options of documents are set, but no token ends a document");
}

// Applies the document rules to sample `sample` of the batch, whose tokens are already read.
void SampleSource::read_documents(Batch& batch, int64_t sample) const {
  const int64_t row = sample * seq_length_;
  const int32_t* tokens = batch.tokens.as<int32_t>() + row;
  int32_t* positions = batch.positions.as<int32_t>() + row;
  int32_t* begins = documents_.separate_attention ? batch.document_begin.as<int32_t>() + row : nullptr;
  float* weight = batch.loss_weight.as<float>() + row;
  int32_t begin = 0;
  for (int32_t t = 0; t < static_cast<int32_t>(seq_length_); ++t) {
    const bool ends = tokens[t] == documents_.end;
    positions[t] = documents_.restart_positions ? t - begin : t;
    if (begins != nullptr) begins[t] = begin;
    weight[t] = ends && documents_.mask_loss ? 0.0F : 1.0F;
    if (ends) begin = t + 1;
  }
}

void SampleSource::read(Batch& batch, int64_t first_sample) const {
  const int64_t count = batch.samples();
  const Shape shape{count, seq_length_};
  check(batch.tokens.shape == shape && batch.labels.shape == shape && batch.positions.shape == shape &&
            batch.loss_weight.shape == shape &&
            (!documents_.separate_attention || batch.document_begin.shape == shape),
        "the batch is {}, the data source has sequences of {} tokens", to_string(batch.tokens.shape),
        seq_length_);
  check(0 <= first_sample && first_sample + count <= samples(),
        "samples [{}, {}) were asked for, the data source has {}", first_sample, first_sample + count,
        samples());
  batch.first_sample = first_sample;
  static thread_local std::vector<int32_t> text;  // allocated once per thread
  text.resize(static_cast<size_t>(seq_length_) + 1);
  for (int64_t b = 0; b < count; ++b) {
    samples_->read(first_sample + b, text);
    const int64_t row = b * seq_length_;
    std::copy(text.begin(), text.end() - 1, batch.tokens.as<int32_t>() + row);
    std::copy(text.begin() + 1, text.end(), batch.labels.as<int32_t>() + row);
    read_documents(batch, b);
  }
}

}  // namespace trifold
