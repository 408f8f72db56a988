// The folder that a run saves its checkpoints in: one run at a time, without remains of saves that were cut
// short, and with as many checkpoints as asked for.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/new_checkpoint.h"

namespace trifold {

// While a run holds its folder: who it is, as "process 4711 on host node7". The next run overwrites what a
// killed one has left.
inline constexpr std::string_view kOwnerName = "OWNER";

// Holds a folder for one run. Two runs in one folder would remove each other's checkpoints; the second is
// refused. The lock is the kernel's: it ends with the process, however that ends. File systems without locks
// are used without one, which is a warning.
class SaveFolder {
 public:
  using Lock = int (*)(int folder, int how);  // as flock(2)

  // Makes the folder where it is missing, locks it, and removes what unfinished saves have left. BadInput
  // when another process holds it. `lock` is for tests.
  explicit SaveFolder(const std::filesystem::path& root, Lock lock = nullptr);
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  // An Error where the path no longer leads to the folder that was locked: it was moved away, removed or
  // replaced. To be called before each save, which would otherwise make the folder anew, without its lock.
  void check_in_place() const;

  // What the user should know, but does not keep the run from saving.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void remove_remains();

  std::filesystem::path root_;
  int fd_ = -1;
  std::vector<std::string> warnings_;
};

// BadInput when another process holds the folder `root`, which is there.
void check_not_taken(const std::filesystem::path& root);

// The step of a folder called like a checkpoint; -1 for any other name.
int64_t step_of_name(std::string_view name);

// Folders of `root` that are called like checkpoints, with their steps, newest first. None where `root` is
// missing.
std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints_in(const std::filesystem::path& root);

// Removes the checkpoints that are older than the options.retain newest good ones, of which there are at
// least two. Good is one whose manifest is valid, whose files are there in their full size, and whose first
// step was not seen to be not finite. The newest one that is known to have been trained on
// (checkpoint/first_step.h) stays too. Each loses its name before its files go, so that a kill cannot leave
// half a checkpoint. Folders that cannot be removed are reported to options.warn.
void retire_checkpoints(const std::filesystem::path& root, const SaveOptions& options);

// The warning about an old checkpoint that stays.
std::string cannot_be_removed(const std::filesystem::path& old, const std::error_code& error);

}  // namespace trifold
