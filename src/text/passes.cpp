#include "text/passes.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "text/text_samples.h"

namespace trifold {

RepeatedSamples::RepeatedSamples(std::unique_ptr<Samples> once, int64_t passes, uint64_t seed)
    : once_(std::move(once)), passes_(passes), seed_(seed) {
  check(passes >= 1, "{} passes over the samples", passes);
}

void RepeatedSamples::read(int64_t index, std::span<int32_t> out) const {
  check(0 <= index && index < count(), "sample {} was asked for, there are {}", index, count());
  const int64_t pass = index / once_->count();
  const int64_t place = index % once_->count();
  if (pass == 0) return once_->read(place, out);
  const Permutation order(philox_key(seed_, fmt::format("order of samples, pass {}", pass)), once_->count());
  once_->read(order(place), out);
}

}  // namespace trifold
