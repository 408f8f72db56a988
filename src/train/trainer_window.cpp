#include "train/trainer_window.h"

#include <algorithm>
#include <cmath>

#include "run/checks/finite_check.h"

namespace trifold {

Trainer::Window::Window(Trainer& trainer)
    : trainer_(trainer),
      token_weights_(static_cast<size_t>(trainer.planned_->order().batches)),
      factors_(token_weights_.size(), 1.0),
      squares_(token_weights_.size()) {}

void Trainer::Window::begin() {
  std::fill(token_weights_.begin(), token_weights_.end(), 0.0);
  std::fill(squares_.begin(), squares_.end(), ExactSum());
  steps_ = skipped_ = 0;
}

void Trainer::Window::count_tokens(int micro, const Batch& batch) {
  double& sum = token_weights_[static_cast<size_t>(micro / trainer_.planned_->order().micros)];
  for (int64_t i = 0; i < batch.loss_weight.elements(); ++i) sum += batch.loss_weight.as<float>()[i];
}

void Trainer::Window::step(const Action& action) {
  Trainer& t = trainer_;
  Stream& stream = t.replica_.compute();
  t.grads_.finish(stream);
  const auto index = static_cast<size_t>(steps_);
  Communicator& data_ranks = t.replica_.mesh().comm(kDataAxes);
  Stream host = stream.host();
  data_ranks.all_reduce({&token_weights_[index], DType::F64, {1}}, Reduce::Sum, host);
  const bool counts = token_weights_[index] > 0;
  const int64_t step = t.steps_done_ + steps_;
  factors_[index] =
      counts ? static_cast<double>(t.tokens_per_step()) / token_weights_[index] / t.scaler_.scale() : 0;
  t.norm_.add_squares(squares_[index], stream);
  if (!std::isfinite(squares_[index].value())) {
    t.failed_step_ = step + 1;
    check_sums_finite(t.finite_check_parts(),
                      fmt::format("step {}: stage {} skips its update, because a gradient is not finite "
                                  "(with an asynchronous schedule, other stages may have made theirs)",
                                  step + 1, action.stage));
    t.failed_step_.reset();
  }
  ++steps_;
  t.replica_.weights().begin_version(steps_, stream);
  const int64_t updates = t.updates_before(step) - skipped_;
  t.optimizer_.set_weight_decay(t.decay_of(updates));
  if (counts)
    t.optimizer_.step(steps_, {t.rate_of(updates), updates + 1 - t.optimizer_began_, factors_[index]},
                      stream);
  else
    ++skipped_;  // all tokens are masked, so every gradient is 0
  t.grads_.restart(stream);
}

std::span<const double> Trainer::Window::finish() {
  trainer_.replica_.weights().restart_at(steps_);
  const std::span<double> norms = trainer_.norm_.norms(squares_, trainer_.replica_.compute());
  for (size_t i = 0; i < norms.size(); ++i) norms[i] *= factors_[i];
  return norms;
}

}  // namespace trifold
