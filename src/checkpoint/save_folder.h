// The folder in which a run saves its checkpoints: locked by one run at a time, without leftovers of interrupted saves,
// and with the requested number of checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/new_checkpoint.h"

namespace trifold {

// The file that names the run which has locked the folder, as "process 4711 on host node7". The next run overwrites a
// killed run's file.
inline constexpr std::string_view kOwnerName = "OWNER";

// Locks a folder for one run. Two runs in one folder would remove each other's checkpoints, so the second is rejected.
// The lock is the kernel's and is released at any end of the process. File systems without locks are used without one,
// with a warning.
class SaveFolder {
 public:
  using Lock = int (*)(int folder, int operation);  // as flock(2)

  // Creates the folder if it is missing, locks it, and removes the leftovers of unfinished saves
  // (files/scratch_folder.h). BadInput if another process holds the lock, or as check_own_files. `lock` is for
  // tests. Messages name `option` as the one that gave the folder.
  explicit SaveFolder(const std::filesystem::path& root, Lock lock = nullptr,
                      const std::string& option = "--save");
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  // Throws if the path no longer leads to the locked folder, because it was moved, removed or replaced. Call it before
  // each save, which would otherwise create the folder again, without a lock.
  void check_in_place() const;

  // Warnings for the user that do not prevent the run from saving.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::filesystem::path root_;
  std::string option_;
  int fd_ = -1;
  std::vector<std::string> warnings_;
};

// BadInput if `root` has a file LATEST, BEST or OWNER that no run wrote, or a link of such a name: a save would replace
// it.
void check_own_files(const std::filesystem::path& root, const std::string& option = "--save");

// BadInput if another process has locked the folder `root`, which must exist.
void check_not_taken(const std::filesystem::path& root, const std::string& option = "--save");

// The step in the name `prefix`<digits> of a folder; -1 for any other name.
int64_t step_of_name(std::string_view name, std::string_view prefix);

// The folders of such names in `root` with their steps, newest first; empty if `root` is missing.
std::vector<std::pair<int64_t, std::filesystem::path>> folders_of_steps(const std::filesystem::path& root,
                                                                        std::string_view prefix);

// The step in the name of a checkpoint's folder; -1 for any other name.
int64_t step_of_name(std::string_view name);

// The checkpoint folders in `root`, by name, with their steps, newest first; empty if `root` is missing.
std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints_in(const std::filesystem::path& root);

// The step of the checkpoint that LATEST names as the last one saved; -1 if the file does not exist or contains no
// name. It may lag behind the checkpoints, because it is written after each.
int64_t latest_step(const std::filesystem::path& root);

// Makes the checkpoint of `step` the best of the folder: <root>/BEST contains its name, as
// "step_0000000010\n".
void mark_best(const std::filesystem::path& root, int64_t step);
// The checkpoint named by a file BEST in the same folder. BadInput for any other text.
std::filesystem::path best_checkpoint(const std::filesystem::path& file);

// Removes the checkpoints older than the options.retain newest good ones, of which at least two are kept. A checkpoint
// is good if its manifest is valid, its files exist with their full size, and its first step is not known to have been
// non-finite. The best checkpoint is kept too, and so is the newest one from which training is known to have continued
// (checkpoint/first_step.h). Each is moved to a scratch folder before its files are removed, so that a kill cannot
// leave half a checkpoint. Folders that cannot be removed are reported to options.warn.
void retire_checkpoints(const std::filesystem::path& root, const SaveOptions& options);

// Removes a folder after moving it to a scratch folder, so that a kill cannot leave half of it under its name. If that
// fails, options.warn gets a message about `what`, as "checkpoint", and the path where the files are now.
void remove_old(const std::filesystem::path& old, std::string_view what, const SaveOptions& options);

// The message about an old `what` that could not be removed.
std::string cannot_be_removed(const std::filesystem::path& old, const std::error_code& error,
                              std::string_view what = "checkpoint");

}  // namespace trifold
