#include "checkpoint/run_identity.h"

#include "checkpoint/reader.h"
#include "checkpoint/save_folder.h"
#include "files/file.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

std::string id_of(const fs::path& checkpoint) {
  try {
    return CheckpointReader(checkpoint, Newest::Usable).manifest().run_id;
  } catch (const Error&) {
    return {};  // loading it will report the problem
  }
}

bool is_same_folder(const fs::path& one, const fs::path& other) {
  std::error_code missing;
  return fs::equivalent(one, other, missing);
}

bool starts_in(const fs::path& root, const RunIdentity& run) {
  if (!run.from) return false;
  // The parent of "d/step_10/" is "d/step_10".
  const fs::path from = run.from->has_filename() ? *run.from : run.from->parent_path();
  return is_same_folder(from, root) || is_same_folder(fs::absolute(from).parent_path(), root);
}

}  // namespace

RunIdentity new_run(std::optional<fs::path> from) { return {random_id(), std::move(from)}; }

RunIdentity continued_run(const fs::path& from) {
  const std::string id = id_of(from);
  return {id.empty() ? random_id() : id, from};
}

void check_owner(const fs::path& root, const RunIdentity& run) {
  std::error_code missing;
  if (fs::exists(root / kManifestName, missing))
    bad_input("--save {} is a checkpoint itself: name the folder that it is in, or another one",
              root.string());
  if (starts_in(root, run)) return;
  const auto checkpoints = checkpoints_in(root);
  if (checkpoints.empty()) return;
  const std::string owner = id_of(root);
  if (!owner.empty() && owner == run.id) return;
  bad_input(
      "--save {} holds checkpoints of another run{}, the newest of step {}: give another --save, "
      "or continue that run with --auto-resume or --load {}",
      root.string(), owner.empty() ? " (without an identity)" : "", checkpoints.front().first, root.string());
}

}  // namespace trifold
