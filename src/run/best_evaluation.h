// BestEvaluation tracks the best evaluation of a run and the number of later ones that were no better, for --save-best
// and --early-stop-patience. It is part of the checkpointed state, so that a resumed run decides like an uninterrupted
// one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/read_json.h"

namespace trifold {

class BestEvaluation {
 public:
  enum class Better { Higher, Lower };

  // `metric` names the values in messages: "AUC".
  BestEvaluation(std::string metric, Better better) : metric_(std::move(metric)), better_(better) {}

  // Adds the value of the evaluation after step `step`. A value that is not finite or equals the best is no better. An
  // absent value says nothing about the model and changes neither the best nor the misses.
  void add(int64_t step, std::optional<double> value);
  // Records that a signal prevented the evaluation after step `step`, so that it is unknown whether that step is the
  // best.
  void leave_out(int64_t step) { left_out_ = step; }

  const std::string& metric() const { return metric_; }
  int64_t last_step() const { return last_step_; }  // step of the last evaluation; 0: none
  // The step after the last evaluation that was left out; 0: none.
  int64_t left_out() const { return left_out_ > last_step_ ? left_out_ : 0; }
  int64_t best_step() const { return best_step_; }  // step of the best evaluation; 0: none
  int64_t misses() const { return misses_; }        // evaluations after the best
  // Whether a run with this patience ends now; never without a patience.
  bool ends_early(const std::optional<int64_t>& patience) const { return patience && misses_ >= *patience; }
  // "3 evaluations after the best AUC, 0.77720 after step 900, were no better"
  std::string text() const;

  nlohmann::json state() const;
  // Restores a value of state(), in a run that has done `steps` steps; BadInput for anything else.
  void restore(const JsonView& state, int64_t steps);

 private:
  std::string metric_;
  Better better_;
  std::optional<double> best_;
  int64_t best_step_ = 0;
  int64_t last_step_ = 0;
  int64_t misses_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace trifold
