#include "run/model_folders.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "checkpoint/collective.h"
#include "checkpoint/run_identity.h"
#include "core/host_memory.h"
#include "core/printable.h"
#include "files/file.h"
#include "files/output_files.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "hf_iter_";

// The file in a model's folder with the identity of its run (checkpoint/run_identity.h).
constexpr std::string_view kRunName = "trifold_run";

fs::path model_of_step(const fs::path& root, int64_t step) {
  return root / fmt::format("{}{:07}", kModelPrefix, step);
}

// The run that wrote a model, and what it computed; empty where they cannot be determined.
struct Writer {
  std::string id, computation;
};
Writer writer_of_model(const fs::path& model) {
  std::error_code missing;
  if (!fs::is_regular_file(model / kRunName, missing)) return {};
  std::istringstream lines(first_bytes(model / kRunName, kMostShownBytes));
  Writer writer;
  std::getline(lines, writer.id);
  std::getline(lines, writer.computation);
  return writer;
}

std::string run_of_model(const fs::path& model) { return writer_of_model(model).id; }

// BadInput if the folder has models of a run other than `id`.
void check_models(const fs::path& root, const std::string& id) {
  for (const auto& [step, model] : models_in(root)) {
    if (run_of_model(model) == id) continue;
    bad_input(
        "--save-hf {} holds models of another run, for example {}, and this run would mix its own with them: give "
        "another --save-hf, or continue that run from its checkpoints with --auto-resume or --load; if it saved "
        "none, remove its models, or start it over with the same options, --save and --auto-resume",
        root.string(), model.filename().string());
  }
}

// Whether `path` is `root`, or something in it.
bool is_in(const fs::path& path, const fs::path& root) {
  std::error_code missing;
  const fs::path inner = fs::weakly_canonical(fs::absolute(path), missing) / "";
  const fs::path outer = fs::weakly_canonical(fs::absolute(root), missing) / "";
  if (outer.empty()) return false;          // it cannot be read, which is reported when it is opened
  const auto end = std::prev(outer.end());  // the empty name after the last separator
  return std::mismatch(outer.begin(), end, inner.begin(), inner.end()).first == end;
}

}  // namespace

std::vector<std::pair<int64_t, fs::path>> models_in(const fs::path& root) {
  return folders_of_steps(root, kModelPrefix);
}

bool lacks_model(const RunStart& start, const CheckpointConfig& config) {
  if (!config.save_hf_interval || !start.from || start.part != LoadPart::All) return false;
  const int64_t step = position_of(start).steps;
  std::error_code missing;
  return step > 0 && step % *config.save_hf_interval == 0 &&
         !fs::exists(model_of_step(*config.save_hf, step), missing);
}

void take_over_models(const CheckpointConfig& config, RunStart& start) {
  if (!config.auto_resume || !config.save_hf || start.computation.empty()) return;
  if (start.from && start.part == LoadPart::All) return;
  std::string id;
  for (const auto& entry : models_in(*config.save_hf)) {
    const Writer writer = writer_of_model(entry.second);
    const bool same_run = id.empty() || writer.id == id;
    if (writer.id.empty() || !same_run || writer.computation != start.computation) return;
    id = writer.id;
  }
  start.earlier_id = id;
}

void check_model_folder(const CheckpointConfig& config, const RunStart& start) {
  const std::string& folder = *config.save_hf;
  check_writable_folder("--save-hf", folder);
  std::error_code missing;
  if (config.save && fs::weakly_canonical(*config.save, missing) == fs::weakly_canonical(folder, missing))
    bad_input("--save-hf {} is the folder of --save: give another, for example {}/hugging_face", folder,
              *config.save);
  if (config.load && is_in(*config.load, folder))
    bad_input(
        "--load {} is in the folder of --save-hf, whose models the run replaces: give another --save-hf",
        *config.load);
  check_own_files(folder, "--save-hf");
  if (!fs::is_directory(folder, missing)) return;
  check_not_taken(folder, "--save-hf");
  check_models(folder, identity_of(start).id);
}

ModelFolders::ModelFolders(Communicator& world, Savable& run, const CheckpointConfig& config,
                           const std::string& run_id, std::string computation, const WriteModel& write,
                           SaveObserver* observer, std::function<void(SavePhase)> at_phase)
    : world_(world),
      run_(run),
      config_(config),
      computation_(std::move(computation)),
      write_(write),
      observer_(observer) {
  if (!config.save_hf_interval) return;
  options_.only_weights = true;
  options_.at_phase = std::move(at_phase);
  options_.warn = [this](std::string text) {
    const std::lock_guard lock(mutex_);
    warnings_.push_back(std::move(text));
  };
  gather_texts(world, "reserving the folder " + *config.save_hf, [&]() -> std::string {
    check(static_cast<bool>(write), "this run cannot write models");
    if (world.rank() == 0) take_folder(run_id);
    return {};
  });
  tell_warnings();
  background_.emplace(world, [] { return free_memory(); });
}

// Locks the folder and checks it again, in case another run has used it since the options were checked.
void ModelFolders::take_folder(const std::string& run_id) {
  folder_.emplace(*config_.save_hf, nullptr, "--save-hf");
  check_models(*config_.save_hf, run_id);
  options_.run_id = run_id;
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
  write_text(made / kRunName, options_.run_id + "\n" + computation_ + (computation_.empty() ? "" : "\n"));
  folder_->check_in_place();
  rename_to(made, target, scratch);
  if (const std::error_code error = scratch.remove())
    options_.report(cannot_be_removed(scratch.path(), error, "model"));
  if (config_.save_retain) {
    auto models = models_in(target.parent_path());
    std::erase_if(models, [&](const auto& model) { return run_of_model(model.second) != options_.run_id; });
    for (size_t i = static_cast<size_t>(*config_.save_retain); i < models.size(); ++i)
      if (models[i].second != target) remove_old(models[i].second, "model", options_);
  }
  return target;
}

void ModelFolders::start() {
  const int64_t step = run_.steps_done();
  const fs::path target = model_of_step(*config_.save_hf, step);
  std::shared_ptr<ScratchFolder> scratch;  // on rank 0
  const fs::path root = gather_texts(world_, "saving " + target.string(), [&]() -> std::string {
                          if (world_.rank() != 0) return {};
                          folder_->check_in_place();
                          std::error_code missing;
                          check(!fs::exists(target, missing) || run_of_model(target) == options_.run_id,
                                "{} is a model of another run", target.string());
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
    failed(error);
  }
  tell_warnings();
}

void ModelFolders::failed(const Error& error) {
  if (config_.on_save_error == OnSaveError::Stop || error.kind() == ErrorKind::Aborted)
    throw;  // the exception being handled
  if (observer_ != nullptr) observer_->on_warning(fmt::format("a model was not written: {}", error.what()));
  tell_warnings();
}

void ModelFolders::save() {
  take_result();
  try {
    start();
  } catch (const Error& error) {
    failed(error);
  }
}

void ModelFolders::save_if_missing() {
  const int64_t step = run_.steps_done();
  const std::string missing =
      gather_texts(world_, "looking for models", [&]() -> std::string {
        return world_.rank() == 0 && !fs::exists(model_of_step(*config_.save_hf, step)) ? "missing" : "";
      }).front();
  if (!missing.empty()) save();
}

void ModelFolders::poll() {
  if (background_ && background_->is_ready()) take_result();
}

void ModelFolders::finish() {
  if (background_) take_result();
}

}  // namespace trifold
