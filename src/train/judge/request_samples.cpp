#include "train/judge/request_samples.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"

namespace trifold {

// Each request goes to the sample with the least room that is enough.
RequestSamples::RequestSamples(std::span<const ScoringRequest> requests, int64_t length)
    : requests_(requests), length_(length) {
  std::multimap<int64_t, size_t> by_room;  // room left: sample
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t needed = requests[i].inputs();
    check(needed <= length, "a request of {} tokens does not fit in a sample of {}", needed, length);
    auto place = by_room.lower_bound(needed);
    if (place == by_room.end()) {
      place = by_room.emplace(length, samples_.size());
      samples_.emplace_back();
    }
    const auto [room, sample] = *place;
    by_room.erase(place);
    samples_[sample].push_back({static_cast<int64_t>(i), length - room});
    if (room > needed) by_room.emplace(room - needed, sample);
  }
}

void RequestSamples::write(Batch& batch, int64_t row, const Place& place) const {
  const ScoringRequest& request = requests_[static_cast<size_t>(place.request)];
  const int64_t begin = row * length_ + place.begin;
  const int64_t count = request.inputs();
  std::copy(request.tokens.begin(), request.tokens.end() - 1, batch.tokens.as<int32_t>() + begin);
  std::copy(request.tokens.begin() + 1, request.tokens.end(), batch.labels.as<int32_t>() + begin);
  std::iota(batch.positions.as<int32_t>() + begin, batch.positions.as<int32_t>() + begin + count, 0);
  std::fill_n(batch.document_begin.as<int32_t>() + begin, count, static_cast<int32_t>(place.begin));
  std::fill_n(batch.loss_weight.as<float>() + begin + request.first_scored(), request.scored, 1.0F);
  if (batch.padding.data != nullptr) std::fill_n(batch.padding.as<int32_t>() + begin, count, 0);
}

void RequestSamples::read(Batch& batch, int64_t first_sample) const {
  batch.first_sample = first_sample;
  for (int64_t row = 0; row < batch.samples(); ++row) {
    const std::vector<Place>& all = places(first_sample + row);
    const Place& last = all.back();
    const int64_t used = last.begin + requests_[static_cast<size_t>(last.request)].inputs();
    const int64_t at = row * length_;
    std::fill_n(batch.loss_weight.as<float>() + at, length_, 0.0F);
    // The rest is a document of padding.
    std::fill_n(batch.tokens.as<int32_t>() + at + used, length_ - used, 0);
    std::fill_n(batch.labels.as<int32_t>() + at + used, length_ - used, 0);
    std::iota(batch.positions.as<int32_t>() + at + used, batch.positions.as<int32_t>() + at + length_, 0);
    std::fill_n(batch.document_begin.as<int32_t>() + at + used, length_ - used, static_cast<int32_t>(used));
    if (batch.padding.data != nullptr)
      std::fill_n(batch.padding.as<int32_t>() + at + used, length_ - used, 1);
    for (const Place& place : all) write(batch, row, place);
  }
}

int64_t length_of_samples(std::span<const ScoringRequest> requests, int64_t most, int64_t unit) {
  constexpr int64_t kEfficient = 1024;
  int64_t length = kEfficient;
  for (const ScoringRequest& request : requests) length = std::max(length, request.inputs());
  return std::min(most, (length + unit - 1) / unit * unit);
}

}  // namespace trifold
