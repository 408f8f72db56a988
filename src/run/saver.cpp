#include "run/saver.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/collective.h"
#include "core/host_memory.h"

namespace trifold {

RunSaver::RunSaver(Communicator& world, Savable& run, const CheckpointConfig& config, const RunStart& start,
                   SaveObserver* observer, std::function<void(SavePhase)> at_phase)
    : world_(world), run_(run), config_(config), observer_(observer), notes_(world.rank() == 0) {
  options_.retain = config.save_retain.value_or(0);
  options_.at_phase = std::move(at_phase);
  options_.warn = [this](std::string text) {
    const std::lock_guard lock(mutex_);
    warnings_.push_back(std::move(text));
  };
  if (!config.save) {
    if (world.rank() == 0) options_.run_id = identity_of(start).id;
    return;
  }
  gather_texts(world, "reserving the folder " + *config.save, [&]() -> std::string {
    if (world.rank() == 0) take_folder(start);
    return {};
  });
  tell_warnings();
  if (config.async_save) background_.emplace(world, [] { return free_memory(); });
}

// Locks the folder and checks it again, in case another run has used it since the options were checked.
void RunSaver::take_folder(const RunStart& start) {
  folder_.emplace(*config_.save);
  const RunIdentity run = identity_of(start);
  check_owner(*config_.save, run);
  options_.run_id = run.id;
  options_.folder = &*folder_;
  warnings_ = folder_->warnings();
}

void RunSaver::tell_warnings() {
  const std::lock_guard lock(mutex_);
  if (observer_ != nullptr)
    for (const std::string& text : warnings_) observer_->on_warning(text);
  warnings_.clear();
}

void RunSaver::failed(const Error& error) {
  if (config_.on_save_error == OnSaveError::Stop || error.kind() == ErrorKind::Aborted)
    throw;  // the exception being handled
  if (observer_ != nullptr) observer_->on_warning(fmt::format("a save failed: {}", error.what()));
  tell_warnings();
}

void RunSaver::save_now() {
  const std::string directory = run_.save(*config_.save, options_);
  saved_step_ = run_.steps_done();
  notes_.at(saved_step_, directory);
  if (observer_ != nullptr) observer_->on_saved(saved_step_, directory);
  tell_warnings();
}

void RunSaver::take_result() {
  const std::string directory = background_->finish();
  saved_step_ = started_step_;
  notes_.at(saved_step_, directory);
  if (observer_ != nullptr) observer_->on_saved(started_step_, directory);
  tell_warnings();
}

void RunSaver::start_in_background() {
  started_step_ = run_.steps_done();
  started_as_best_ = options_.is_best;
  const std::string shortage = run_.save_in_background(*background_, *config_.save, options_);
  if (!shortage.empty() && observer_ != nullptr)
    observer_->on_warning(
        fmt::format("--async-save: step {} is saved while training waits: {}", started_step_, shortage));
  tell_warnings();
}

void RunSaver::check_replicas() {
  if (config_.check_replicas == 0 || checked_step_ == run_.steps_done()) return;
  run_.check_replicas(fmt::format("step {}", run_.steps_done()));
  checked_step_ = run_.steps_done();
}

void RunSaver::check_when_due() {
  const int64_t interval = config_.check_replicas.value_or(0);
  if (interval > 0 && run_.steps_done() % interval == 0) check_replicas();
}

// A background save counts even if it has failed: ranks notice its end at different times, and must decide alike.
bool RunSaver::is_saved() const {
  const int64_t step = run_.steps_done();
  return saved_step_ == step || started_step_ == step;
}

void RunSaver::save() {
  if (!config_.save || is_saved()) return;
  check_replicas();
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

void RunSaver::save_best() {
  if (!config_.save) return;
  if (!is_saved()) {
    options_.is_best = true;
    save();
    options_.is_best = false;
    return;
  }
  if (started_step_ == run_.steps_done()) {
    if (started_as_best_) return;
    try {
      if (background_->is_outstanding()) take_result();
    } catch (const Error& error) {
      return failed(error);
    }
    if (saved_step_ != started_step_) return;  // it failed, which was reported
  }
  mark_saved_as_best();
}

void RunSaver::mark_saved_as_best() {
  try {
    gather_texts(world_, "marking the best checkpoint", [&]() -> std::string {
      if (folder_) mark_best(*config_.save, saved_step_);
      return {};
    });
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

void RunSaver::wait() {
  if (!background_ || !background_->is_outstanding()) return;
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
      if (started_step_ == run_.steps_done()) throw;
      failed(error);
    }
  }
  if (saved_step_ == run_.steps_done()) return;
  check_replicas();
  save_now();
}

// Outcomes are recorded only in the folder of --save; this run must not change other folders.
void RunSaver::loaded(const RunStart& start) {
  if (!config_.save || !start.from || start.part != LoadPart::All) return;
  namespace fs = std::filesystem;
  const fs::path root(*config_.save);
  const fs::path from = fs::absolute(*start.from) / "";
  std::error_code error;
  if (!fs::equivalent(from, root, error) && !fs::equivalent(from.parent_path().parent_path(), root, error))
    return;
  const fs::path checkpoint = root / step_directory_name(run_.steps_done());
  if (!fs::is_directory(checkpoint, error)) return;
  saved_step_ = run_.steps_done();
  notes_.at(saved_step_, checkpoint);
}

void RunSaver::returned_to(const RunStart& start) {
  checked_step_ = started_step_ = saved_step_ = -1;
  notes_ = FirstStepNotes(world_.rank() == 0);
  loaded(start);
}

void RunSaver::step_was_finite() { notes_.finite(run_.steps_done()); }

Error RunSaver::not_finite(int64_t step, const Error& error, const LoadedStart& loaded) {
  if (error.kind() == ErrorKind::Agreed && background_ && background_->is_outstanding()) {
    try {
      take_result();
    } catch (const Error&) {  // a worse error is reported already
    }
  }
  std::string text = error.what();
  if (notes_.not_finite(step, text, error.kind() != ErrorKind::Agreed))
    text += fmt::format(
        ". It was the first step after the checkpoint of step {}: the next run with --auto-resume continues "
        "from an older one",
        step - 1);
  if (std::find(loaded.passed_over.begin(), loaded.passed_over.end(), step - 1) != loaded.passed_over.end())
    text += fmt::format(
        ". A run before this one failed in the same step, and this one had gone back to an older checkpoint: "
        "not that state is at fault, but the samples of step {}, the learning rate, or another option",
        step);
  return Error(std::move(text), error.kind());
}

void tidy_save_folder(const CheckpointConfig& config) {
  try {
    if (config.save) SaveFolder folder(*config.save);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;
  }
}

}  // namespace trifold
