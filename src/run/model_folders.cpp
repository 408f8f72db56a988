#include "run/model_folders.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "checkpoint/collective.h"
#include "core/host_memory.h"
#include "files/output_files.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "hf_iter_";

std::string model_name(int64_t step) { return fmt::format("{}{:07}", kModelPrefix, step); }

// The step in the name of a model's folder; -1 for any other name.
int64_t step_of_model(std::string_view name) {
  if (!name.starts_with(kModelPrefix)) return -1;
  const std::string digits(name.substr(kModelPrefix.size()));
  if (digits.size() < 7 || digits.size() > 18) return -1;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

// Removes a model after moving it to a scratch folder, so that a kill cannot leave half of it under its name.
void remove_model(const fs::path& model, const SaveOptions& options) {
  ScratchFolder scratch(model);
  std::error_code error;
  ScratchFolder::protect([&] { fs::rename(model, scratch.file("old"), error); });
  if (!error) error = scratch.remove();
  if (error)
    options.report(fmt::format("the old model {} cannot be removed and still takes up space: {}",
                               model.string(), error.message()));
}

}  // namespace

std::vector<std::pair<int64_t, fs::path>> models_in(const fs::path& root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;  // the folder may be missing, or change meanwhile
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const int64_t step = step_of_model(entry->path().filename().string());
    std::error_code gone;
    if (step >= 0 && entry->is_directory(gone)) found.emplace_back(step, entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void check_model_folder(const CheckpointConfig& config, const RunStart& start) {
  const std::string& folder = *config.save_hf;
  check_writable_folder("--save-hf", folder);
  std::error_code missing;
  if (config.save && fs::weakly_canonical(*config.save, missing) == fs::weakly_canonical(folder, missing))
    bad_input("--save-hf {} is the folder of --save: give another, for example {}/hugging_face", folder,
              *config.save);
  check_own_files(folder);
  if (!fs::is_directory(folder, missing)) return;
  check_not_taken(folder);
  const auto models = models_in(folder);
  const bool continues = config.auto_resume || (start.from && start.part == LoadPart::All);
  if (!models.empty() && !continues)
    bad_input(
        "--save-hf {} holds models of another run, the newest of step {}: give another --save-hf, or continue that "
        "run with --auto-resume or --load",
        folder, models.front().first);
}

ModelFolders::ModelFolders(Communicator& world, Savable& run, const CheckpointConfig& config,
                           const WriteModel& write, SaveObserver* observer,
                           std::function<void(SavePhase)> at_phase)
    : world_(world), run_(run), config_(config), write_(write), observer_(observer) {
  if (!config.save_hf_interval) return;
  options_.only_weights = true;
  options_.at_phase = std::move(at_phase);
  options_.warn = [this](std::string text) {
    const std::lock_guard lock(mutex_);
    warnings_.push_back(std::move(text));
  };
  gather_texts(world, "reserving the folder " + *config.save_hf, [&]() -> std::string {
    check(static_cast<bool>(write), "this run cannot write models");
    if (world.rank() == 0) take_folder();
    return {};
  });
  tell_warnings();
  background_.emplace(world, [] { return free_memory(); });
}

void ModelFolders::take_folder() {
  folder_.emplace(*config_.save_hf);
  options_.folder = &*folder_;
  warnings_ = folder_->warnings();
}

void ModelFolders::tell_warnings() {
  const std::lock_guard lock(mutex_);
  if (observer_ != nullptr)
    for (const std::string& text : warnings_) observer_->on_warning(text);
  warnings_.clear();
}

// Converts the checkpoint, gives the model its name, and removes older models by the rule of --save-retain.
fs::path ModelFolders::convert(const fs::path& checkpoint, const fs::path& target, ScratchFolder& scratch) {
  const fs::path made = scratch.file("model");
  write_(checkpoint, made);
  folder_->check_in_place();
  rename_to(made, target, scratch);
  if (const std::error_code error = scratch.remove())
    options_.report(fmt::format("{} cannot be removed and still takes up space: {}", scratch.path().string(),
                                error.message()));
  if (config_.save_retain) {
    const auto models = models_in(target.parent_path());
    for (size_t i = static_cast<size_t>(*config_.save_retain); i < models.size(); ++i)
      if (models[i].second != target) remove_model(models[i].second, options_);
  }
  return target;
}

void ModelFolders::start() {
  const int64_t step = run_.steps_done();
  const fs::path target = fs::path(*config_.save_hf) / model_name(step);
  std::shared_ptr<ScratchFolder> scratch;  // on rank 0
  const fs::path root = gather_texts(world_, "saving " + target.string(), [&]() -> std::string {
                          if (world_.rank() != 0) return {};
                          folder_->check_in_place();
                          scratch = std::make_shared<ScratchFolder>(target);
                          fs::create_directory(scratch->file("checkpoint"));
                          return scratch->file("checkpoint").string();
                        }).front();
  SaveOptions options = options_;
  options.then = [this, target, scratch](const fs::path& checkpoint) {
    return convert(checkpoint, target, *scratch);
  };
  started_step_ = step;
  const std::string shortage = run_.save_in_background(*background_, root.string(), options);
  if (!shortage.empty() && observer_ != nullptr)
    observer_->on_warning(
        fmt::format("--save-hf: the model of step {} is written while training waits: {}", step, shortage));
  tell_warnings();
}

void ModelFolders::take_result() {
  if (!background_->is_outstanding()) return;
  try {
    const std::string folder = background_->finish().string();
    if (observer_ != nullptr) observer_->on_saved(started_step_, folder);
  } catch (const Error& error) {
    if (config_.on_save_error == OnSaveError::Stop || error.kind() == ErrorKind::Aborted) throw;
    if (observer_ != nullptr) observer_->on_warning(fmt::format("a model was not written: {}", error.what()));
  }
  tell_warnings();
}

void ModelFolders::save() {
  take_result();
  start();
}

void ModelFolders::poll() {
  if (background_ && background_->is_ready()) take_result();
}

void ModelFolders::finish() {
  if (background_) take_result();
}

}  // namespace trifold
