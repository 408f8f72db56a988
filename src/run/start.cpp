#include "run/start.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/collective.h"
#include "checkpoint/first_step.h"
#include "checkpoint/save_folder.h"
#include "core/printable.h"
#include "files/file.h"
#include "files/output_files.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/open_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// BadInput if the folder's newest checkpoint is ahead of this run: every reader would keep opening that one.
void check_newest(const CheckpointConfig& config, int64_t first_step) {
  const std::string& save = *config.save;
  if (checkpoints_in(save).empty()) return;
  const int64_t newest = CheckpointReader(save, Newest::Usable).meta().step;
  if (newest <= first_step) return;
  if (config.load == save && config.finetune)
    bad_input(
        "--save {} holds a checkpoint of step {} already, and --finetune begins at step 0: give another "
        "--save, or leave out --finetune to continue from it",
        save, newest);
  bad_input(
      "--save {} holds a checkpoint of step {} already, and this run starts after step {}: "
      "give --load {} to continue from it, or another --save",
      save, newest, first_step, save);
}

// BadInput if a run's folder has lost its checkpoints: starting at step 1 again would hide the loss.
void check_not_emptied(const std::string& save) {
  const std::filesystem::path latest = std::filesystem::path(save) / kLatestName;
  std::error_code missing;
  if (!std::filesystem::is_regular_file(latest, missing)) return;
  const std::string name = first_bytes(latest, kMostShownBytes);
  bad_input(
      "--auto-resume: {} says that checkpoints were saved in {}, the last one as {}, but none is there: "
      "put them back, give another --save, or remove {} to start a new run",
      latest.string(), save, printable(name.substr(0, name.find('\n'))), latest.string());
}

// Whether two paths, which need not exist, denote the same file or folder, however they are written.
bool are_alike(const std::string& one, const std::string& other) {
  const auto plain = [](const std::string& path) { return (fs::absolute(path) / "").lexically_normal(); };
  return plain(one) == plain(other);
}

// BadInput, with advice, if a command loads from its own --save folder at its first launch, when it is empty.
void check_not_first_launch(const CheckpointConfig& config) {
  if (!config.load || !config.save || config.finetune || !are_alike(*config.load, *config.save)) return;
  std::error_code missing;
  if (!checkpoints_in(*config.load).empty() || fs::exists(fs::path(*config.load) / kManifestName, missing))
    return;
  bad_input(
      "--load {}: the folder holds no checkpoint yet; {}", *config.load,
      config.auto_resume
          ? "leave out --load: --auto-resume continues from the folder of --save once it holds one"
          : "give --auto-resume instead of --load, and the same command starts the run and later continues it");
}

// The newest readable checkpoint of a folder whose first step is not known to be not finite.
std::optional<std::string> newest_unmarked(const std::string& root) {
  for (const auto& [step, folder] : checkpoints_in(root)) {
    if (first_step_of(folder).outcome == FirstStep::Outcome::NotFinite) continue;
    try {
      return CheckpointReader(folder).directory().string();
    } catch (const Error&) {  // the next one then
    }
  }
  return std::nullopt;
}

// The checkpoint of a step in a folder. BadInput, with the steps there, if there is none.
std::string checkpoint_of_step(const std::string& root, int64_t step) {
  std::vector<int64_t> steps;
  for (const auto& [there, folder] : checkpoints_in(root)) {
    if (there == step) return folder.string();
    steps.push_back(there);
  }
  bad_input("--ckpt-step {}: {} {}", step, root,
            steps.empty()
                ? "is no folder with checkpoints: leave it out, or give the folder in --load"
                : fmt::format("has checkpoints of the steps {}: give one of them", fmt::join(steps, ", ")));
}

}  // namespace

RunStart choose_start(const CheckpointConfig& config) {
  if (config.auto_resume && config.save && !checkpoints_in(*config.save).empty())
    return {config.save, LoadPart::All, true, false};
  if (config.auto_resume && config.save) check_not_emptied(*config.save);
  check_not_first_launch(config);
  const LoadPart weights = config.moe_use_upcycling ? LoadPart::Dense : LoadPart::Weights;
  // Has nothing but weights.
  const bool is_model = config.load && (is_peft_folder(*config.load) || is_hugging_face_folder(*config.load));
  RunStart start{config.load, config.finetune || is_model ? weights : LoadPart::All, false};
  if (config.ckpt_step) start.from = checkpoint_of_step(*config.load, *config.ckpt_step);
  start.new_optimizer = config.no_load_optim && start.part == LoadPart::All;
  return start;
}

CheckpointReader checkpoint_of(const RunStart& start) {
  return open_model(*start.from, start.may_fall_back ? Newest::Usable : Newest::OrError);
}

RunIdentity identity_of(const RunStart& start) {
  if (start.from && start.part == LoadPart::All) return continued_run(*start.from);
  if (!start.earlier_id.empty()) return {start.earlier_id, start.from};
  if (start.from) return new_run(*start.from);
  return new_run();
}

void check_save(const CheckpointConfig& config, const RunStart& start, std::optional<int64_t> first_step) {
  const std::string& save = *config.save;
  check_writable_folder("--save", save);
  check_own_files(save);
  if (!first_step) return;
  try {
    check_owner(save, identity_of(start));
    check_newest(config, *first_step);
  } catch (const Error&) {
    check_not_taken(save);  // reports first that a run is saving there now
    throw;
  }
}

void check_not_marked(const RunStart& start, const CheckpointConfig& config) {
  if (!start.from || start.may_fall_back || start.part != LoadPart::All) return;
  std::error_code missing;
  if (fs::exists(fs::path(*start.from) / kManifestName, missing)) return;
  const fs::path newest = CheckpointReader(*start.from).directory();
  const FirstStep first = first_step_of(newest);
  if (first.outcome != FirstStep::Outcome::NotFinite) return;
  std::string remedy;
  if (config.save && are_alike(*config.save, *start.from))
    remedy =
        "give --auto-resume instead of --load to continue from the newest checkpoint before it, or give ";
  else if (const auto older = newest_unmarked(*start.from))
    remedy = fmt::format("give --load {} to continue from the newest checkpoint before it, or give ", *older);
  bad_input(
      "--load {}: the first step from {}, its newest checkpoint, was not finite ({}): {}--load {} to "
      "try that one again",
      *start.from, newest.string(), first.why, remedy.empty() ? "give " : remedy, newest.string());
}

RunPosition position_of(const RunStart& start) {
  if (!start.from || start.part != LoadPart::All) return {};
  try {
    const CheckpointReader reader = checkpoint_of(start);
    return {reader.meta().step, reader.meta().consumed_samples};
  } catch (const Error&) {
    return {};  // check_start reports the mistake
  }
}

namespace {

// The checkpoints of a folder in the order in which they are tried, as text: a character that marks whether the first
// step is known not to be finite, the path, and a zero byte, which no path contains.
constexpr char kTry = '+';
constexpr char kTryLast = '-';

std::string checkpoints_to_try(const std::string& root, std::vector<std::string>& warnings) {
  std::string names, last;
  const auto checkpoints = checkpoints_in(root);
  if (const int64_t latest = latest_step(root); !checkpoints.empty() && latest > checkpoints.front().first)
    warnings.push_back(fmt::format("{}, the newest checkpoint according to {}, is gone; older ones are tried",
                                   (fs::path(root) / step_directory_name(latest)).string(),
                                   (fs::path(root) / kLatestName).string()));
  for (const auto& [step, folder] : checkpoints) {
    const FirstStep first = first_step_of(folder);
    const bool failed = first.outcome == FirstStep::Outcome::NotFinite;
    (failed ? last : names) += (failed ? kTryLast : kTry) + folder.string() + '\0';
    if (failed)
      warnings.push_back(
          fmt::format("the first step from {} was not finite ({}); older checkpoints are tried first",
                      folder.string(), first.why));
  }
  return last + names;
}

}  // namespace

LoadedStart load_start(const RunStart& start, Communicator& world,
                       FunctionRef<std::vector<std::string>(const std::string& path)> load) {
  LoadedStart loaded;
  if (!start.from) return loaded;
  if (!start.may_fall_back) {
    loaded.changes = load(*start.from);
    return loaded;
  }
  // All ranks use rank 0's list, so that folders that appear or vanish do not make them differ.
  const std::string list =
      gather_texts(world, "looking for checkpoints", [&] {
        return world.rank() == 0 ? checkpoints_to_try(*start.from, loaded.warnings) : std::string();
      }).front();
  std::vector<std::string> folders, last;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = list.find('\0', begin);
    (list[begin] == kTryLast ? last : folders).push_back(list.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  for (const std::string& folder : last)
    loaded.passed_over.push_back(step_of_name(std::filesystem::path(folder).filename().string()));
  folders.insert(folders.end(), last.begin(), last.end());
  for (const std::string& folder : folders) {
    try {
      loaded.changes = load(folder);
      const int64_t taken = step_of_name(fs::path(folder).filename().string());
      std::erase_if(loaded.passed_over, [&](int64_t step) { return step <= taken; });
      return loaded;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Aborted) throw;
      loaded.warnings.push_back(fmt::format("passed over {}: {}", folder, error.what()));
    }
  }
  bad_input("no checkpoint in {} can be used:\n{}", *start.from, fmt::join(loaded.warnings, "\n"));
}

}  // namespace trifold
