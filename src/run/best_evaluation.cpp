#include "run/best_evaluation.h"

#include <fmt/format.h>

#include <cmath>

namespace trifold {

void BestEvaluation::add(int64_t step, std::optional<double> value) {
  last_step_ = step;
  if (!value) return;
  if (std::isfinite(*value) && (!best_ || (better_ == Better::Higher ? *value > *best_ : *value < *best_))) {
    best_ = value;
    best_step_ = step;
    misses_ = 0;
  } else {
    ++misses_;
  }
}

std::string BestEvaluation::text() const {
  if (!best_) return fmt::format("{} evaluations gave no {}", misses_, metric_);
  return fmt::format("{} evaluations after the best {}, {:.5f} after step {}, were no better", misses_,
                     metric_, *best_, best_step_);
}

nlohmann::json BestEvaluation::state() const {
  nlohmann::json state = {{"metric", metric_},
                          {"value", best_ ? nlohmann::json(*best_) : nlohmann::json(nullptr)},
                          {"step", best_step_},
                          {"last_step", last_step_},
                          {"misses", misses_}};
  if (left_out() > 0) state["left_out"] = left_out();
  return state;
}

void BestEvaluation::restore(const JsonView& state, int64_t steps) {
  metric_ = state.at("metric").text();
  best_.reset();
  if (state.has("value")) best_ = state.at("value").number();
  last_step_ = state.at("last_step").integer(0, steps);
  best_step_ = state.at("step").integer(0, last_step_);
  misses_ = state.at("misses").integer(0);
  left_out_ = state.has("left_out") ? state.at("left_out").integer(0, steps) : 0;
}

}  // namespace trifold
