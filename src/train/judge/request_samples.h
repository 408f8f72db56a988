// RequestSamples packs requests (train/judge/requests.h) into samples: each request is a document of its own, to which
// attention is restricted and in which positions begin at 0, so a sample's requests do not see each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "train/judge/requests.h"

namespace trifold {

class RequestSamples final : public DataSource {
 public:
  // Where the inputs of a request are.
  struct Place {
    int64_t request = 0;
    int64_t begin = 0;  // position of the first
  };

  // `requests` must outlive this object and have at most `length` inputs each. The order of the samples is a function of
  // the requests and the length alone.
  RequestSamples(std::span<const ScoringRequest> requests, int64_t length);

  int64_t seq_length() const override { return length_; }
  int64_t samples() const override { return static_cast<int64_t>(samples_.size()); }
  bool separates_documents() const override { return true; }
  // The positions that predict scored tokens have a loss weight of 1. Unused positions are padding.
  void read(Batch& batch, int64_t first_sample) const override;

  const std::vector<Place>& places(int64_t sample) const { return samples_.at(static_cast<size_t>(sample)); }

 private:
  void write(Batch& batch, int64_t row, const Place& place) const;

  std::span<const ScoringRequest> requests_;
  int64_t length_;
  std::vector<std::vector<Place>> samples_;
};

// The length of samples for these requests on a mesh: a multiple of `unit`, up to `most`, long enough for the longest
// request, and not much longer than efficient, since memory grows with it.
int64_t length_of_samples(std::span<const ScoringRequest> requests, int64_t most, int64_t unit);

}  // namespace trifold
