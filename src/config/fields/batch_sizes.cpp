#include "config/fields/batch_sizes.h"

#include <algorithm>

namespace trifold {

std::optional<BatchRamp> ramp_of(const BatchConfig& batch) {
  const std::vector<WholeNumber>& words = batch.rampup_batch_size;
  if (words.size() != 3) return std::nullopt;
  return BatchRamp{words[0].value, words[1].value, words[2].value};
}

// ceil(count SAMPLES / n), without a product that could overflow.
int64_t BatchSizes::samples_before(int64_t count) const {
  const int64_t n = increments(), whole = ramp_->samples / n, rest = ramp_->samples % n;
  return count * whole + (count * rest + n - 1) / n;
}

StepsOfSize BatchSizes::at(int64_t consumed) const {
  if (!ramp_ || consumed >= ramp_->samples) return {full_, StepsOfSize::kEndless};
  // Near the result; the loops correct what division in floating point rounds.
  auto count = static_cast<int64_t>(static_cast<double>(consumed) / static_cast<double>(ramp_->samples) *
                                    static_cast<double>(increments()));
  while (samples_before(count) > consumed) --count;
  while (samples_before(count + 1) <= consumed) ++count;
  const int64_t size = ramp_->start + count * ramp_->increment;
  return {size, (samples_before(count + 1) - consumed + size - 1) / size};
}

std::vector<StepsOfSize> BatchSizes::sizes_of(int64_t steps, int64_t consumed) const {
  std::vector<StepsOfSize> sizes;
  while (steps > 0) {
    StepsOfSize next = at(consumed);
    next.steps = std::min(next.steps, steps);
    sizes.push_back(next);
    if (next.steps == StepsOfSize::kEndless) break;
    if (steps != StepsOfSize::kEndless) steps -= next.steps;
    consumed += next.steps * next.size;
  }
  return sizes;
}

int64_t BatchSizes::samples_of(int64_t steps, int64_t consumed) const {
  int64_t samples = 0;
  while (steps > 0) {
    const StepsOfSize next = at(consumed + samples);
    const int64_t taken = std::min(next.steps, steps);
    steps -= taken;
    samples += taken * next.size;
  }
  return samples;
}

int64_t BatchSizes::whole_steps(int64_t samples, int64_t consumed) const {
  int64_t steps = 0;
  while (consumed < samples) {
    const StepsOfSize next = at(consumed);
    const int64_t fit = std::min(next.steps, (samples - consumed) / next.size);
    steps += fit;
    consumed += fit * next.size;
    if (fit < next.steps) break;
  }
  return steps;
}

int64_t BatchSizes::steps_to(int64_t samples, int64_t consumed) const {
  int64_t steps = 0;
  while (consumed < samples) {
    const StepsOfSize next = at(consumed);
    const int64_t needed = (samples - consumed + next.size - 1) / next.size;
    const int64_t done = std::min(next.steps, needed);
    steps += done;
    consumed += done * next.size;
  }
  return steps;
}

}  // namespace trifold
