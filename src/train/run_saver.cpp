#include "train/run_saver.h"

#include "checkpoint/collective.h"

namespace trifold {

RunSaver::RunSaver(Communicator& world, Trainer& trainer, const CheckpointConfig& config,
                   RunObserver* observer, std::function<void(SavePhase)> at_phase)
    : trainer_(trainer), config_(config), observer_(observer) {
  options_.retain = config.save_retain.value_or(0);
  options_.at_phase = std::move(at_phase);
  if (!config.save) return;
  gather_texts(world, "taking the folder " + *config.save, [&]() -> std::string {
    if (world.rank() == 0) folder_.emplace(*config.save);
    return {};
  });
  if (config.async_save) background_.emplace(world);
}

void RunSaver::failed(const Error& error) {
  if (config_.on_save_error == "stop" || error.kind() == ErrorKind::Aborted) throw;  // what is being handled
  if (observer_ != nullptr) observer_->on_warning(fmt::format("nothing was saved: {}", error.what()));
}

void RunSaver::save_now() {
  const std::string directory = trainer_.save(*config_.save, options_);
  saved_step_ = trainer_.steps_done();
  if (observer_ != nullptr) observer_->on_saved(saved_step_, directory);
}

void RunSaver::take_result() {
  const std::string directory = background_->finish();
  saved_step_ = started_step_;
  if (observer_ != nullptr) observer_->on_saved(started_step_, directory);
}

void RunSaver::start_in_background() {
  started_step_ = trainer_.steps_done();
  trainer_.save_in_background(*background_, *config_.save, options_);
}

void RunSaver::save() {
  if (!config_.save || saved_step_ == trainer_.steps_done()) return;
  try {
    if (background_ && background_->is_outstanding()) take_result();
  } catch (const Error& error) {
    failed(error);
  }
  try {
    if (background_)
      start_in_background();
    else
      save_now();
  } catch (const Error& error) {
    failed(error);
  }
}

void RunSaver::poll() {
  if (!background_ || !background_->is_ready()) return;
  try {
    take_result();
  } catch (const Error& error) {
    failed(error);
  }
}

void RunSaver::finish() {
  if (!config_.save) return;
  if (background_ && background_->is_outstanding()) {
    try {
      take_result();
    } catch (const Error& error) {
      if (started_step_ == trainer_.steps_done()) throw;
      failed(error);
    }
  }
  if (saved_step_ != trainer_.steps_done()) save_now();
}

}  // namespace trifold
