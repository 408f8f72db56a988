#include "run/flight/wait_limits.h"

#include <algorithm>

namespace trifold {

namespace {

// The first steps allocate memory, measure and capture.
constexpr size_t kStepsAtLeast = 5;

}  // namespace

WaitLimits::WaitLimits(FlightRecorder* recorder, const WatchConfig& config)
    : recorder_(recorder), factor_(config.timeout_factor), floor_seconds_(config.timeout_floor_seconds) {}

WaitLimits::~WaitLimits() {
  if (recorder_ != nullptr) recorder_->set_wait_limit(std::nullopt);
}

std::optional<std::chrono::milliseconds> WaitLimits::learned(RunPart part) const {
  const Durations& durations = durations_.at(static_cast<size_t>(part));
  const size_t enough = part == RunPart::Step ? kStepsAtLeast : 1;
  if (factor_ == 0 || durations.count < enough) return std::nullopt;
  const double longest = *std::max_element(durations.last.begin(), durations.last.end());
  const double seconds = std::max(factor_ * longest, floor_seconds_);
  constexpr double kMostSeconds = 1e9;
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * std::min(seconds, kMostSeconds)));
}

void WaitLimits::begin(RunPart part) {
  before_ = part_;
  part_ = part;
  begun_ = Clock::now();
  if (recorder_ == nullptr) return;
  const auto mine = learned(part_), earlier = learned(before_);
  recorder_->set_wait_limit(mine && earlier ? std::optional(std::max(*mine, *earlier)) : std::nullopt);
}

void WaitLimits::end() {
  Durations& durations = of(part_);
  const double seconds = seconds_since(begun_);
  if (durations.last.size() < kKept)
    durations.last.push_back(seconds);
  else
    durations.last[durations.count % kKept] = seconds;
  ++durations.count;
  if (recorder_ != nullptr) recorder_->set_wait_limit(std::nullopt);
}

}  // namespace trifold
