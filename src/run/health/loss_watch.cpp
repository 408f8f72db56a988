#include "run/health/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace trifold {

namespace {

constexpr double kNormalDeviation = 1.4826;  // the standard deviation over the median absolute deviation
constexpr double kLeastSpread = 1e-3;        // relative to the median
constexpr int64_t kMostSteps = int64_t{1} << 62;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void LossWatch::add(int64_t step, double loss) {
  if (config_.on_loss_spike == OnLossSpike::Ignore || !std::isfinite(loss)) return;
  if (losses_.size() >= kFewest) {
    const double usual = median(losses_);
    std::vector<double> deviations;
    for (const double other : losses_) deviations.push_back(std::abs(other - usual));
    const double spread =
        std::max(kNormalDeviation * median(std::move(deviations)), kLeastSpread * std::abs(usual));
    if (loss - usual > config_.loss_spike_factor * spread) {
      spike_ = LossSpike{step, loss, usual, spread};
      return;
    }
  }
  if (losses_.size() == kWindow) losses_.erase(losses_.begin());
  losses_.push_back(loss);
}

bool LossWatch::skips(int64_t step) const {
  const auto has_step = [&](const Steps& steps) { return steps.first <= step && step <= steps.last; };
  const auto is_step = [&](const StepNumber& number) { return number.step == step; };
  return std::any_of(skipped_.begin(), skipped_.end(), has_step) ||
         std::any_of(config_.iterations_to_skip.begin(), config_.iterations_to_skip.end(), is_step);
}

void LossWatch::keep_skipped(const LossWatch& earlier) {
  for (const Steps& steps : earlier.skipped_)
    if (std::find(skipped_.begin(), skipped_.end(), steps) == skipped_.end()) skipped_.push_back(steps);
}

int64_t LossWatch::times_skipped_after(int64_t step) const {
  return std::count_if(skipped_.begin(), skipped_.end(),
                       [&](const Steps& steps) { return steps.last > step; });
}

nlohmann::json LossWatch::state() const {
  nlohmann::json skipped = nlohmann::json::array();
  for (const Steps& steps : skipped_) skipped.push_back({{"first", steps.first}, {"last", steps.last}});
  return {{"losses", losses_}, {"skipped", std::move(skipped)}};
}

void LossWatch::restore(const JsonView& state) {
  std::vector<double> losses;
  state.at("losses").each([&](const JsonView& loss) { losses.push_back(loss.number()); });
  if (losses.size() > kWindow) losses.erase(losses.begin(), losses.end() - kWindow);
  std::vector<Steps> skipped;
  state.at("skipped").each([&](const JsonView& steps) {
    skipped.push_back({steps.at("first").integer(1, kMostSteps), steps.at("last").integer(1, kMostSteps)});
  });
  losses_ = std::move(losses);
  skipped_ = std::move(skipped);
  spike_.reset();
}

}  // namespace trifold
