// RepeatedSamples: several passes over a list of samples, each with every sample exactly once. The first pass keeps the
// order of the list; each later one has a pseudo-random order, a pure function of the seed.
#pragma once

#include <memory>

#include "text/samples.h"

namespace trifold {

class RepeatedSamples : public Samples {
 public:
  RepeatedSamples(std::unique_ptr<Samples> once, int64_t passes, uint64_t seed);

  int64_t count() const override { return passes_ * once_->count(); }
  void read(int64_t index, std::span<int32_t> out) const override;

 private:
  std::unique_ptr<Samples> once_;
  int64_t passes_;
  uint64_t seed_;
};

}  // namespace trifold
