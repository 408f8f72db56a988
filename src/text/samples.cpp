#include "text/samples.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

BlendedSamples::BlendedSamples(std::vector<std::unique_ptr<Samples>> parts, BlendOrder order,
                               std::vector<std::string> names)
    : parts_(std::move(parts)), order_(std::move(order)), names_(std::move(names)) {
  for (size_t k = 0; k < parts_.size(); ++k) {
    const int64_t needed = order_.taken(k, order_.samples());
    check(needed <= parts_[k]->count(), "the blend needs {} samples of data set {}, which has {}", needed, k,
          parts_[k]->count());
  }
}

void BlendedSamples::read(int64_t index, std::span<int32_t> out) const {
  const BlendOrder::Place place = order_.at(index);
  parts_[place.dataset]->read(place.sample, out);
}

bool BlendedSamples::make_ready(int64_t index, std::chrono::milliseconds patience) const {
  bool ready = true;
  for (size_t k = 0; k < parts_.size(); ++k) {
    const int64_t next = order_.taken(k, std::min(index, order_.samples()));
    if (next < order_.taken(k, order_.samples()))
      ready &= parts_[k]->make_ready(next, ready ? patience : std::chrono::milliseconds(0));
  }
  return ready;
}

std::string BlendedSamples::bookmark(int64_t index) const {
  std::vector<std::string> marks(parts_.size());
  bool any = false;
  for (size_t k = 0; k < parts_.size(); ++k) {
    marks[k] = parts_[k]->bookmark(order_.taken(k, std::min(index, order_.samples())));
    any = any || !marks[k].empty();
  }
  return any ? json_text(nlohmann::json(marks)) : "";
}

void BlendedSamples::count_sources(int64_t samples, std::span<int64_t> counts) const {
  if (!names_.empty()) order_.count(std::min(samples, order_.samples()), counts);
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
