// The folder that a run saves its checkpoints in: one run at a time, without remains of saves that were cut
// short, and with as many checkpoints as asked for.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/new_checkpoint.h"

namespace trifold {

// Holds a folder for one run. Two runs in one folder would remove each other's checkpoints; the second is
// refused. The lock is the kernel's: it ends with the process, however that ends, and leaves no file. File
// systems without locks are used without one.
class SaveFolder {
 public:
  // Makes the folder where it is missing, locks it, and removes what unfinished saves have left. BadInput
  // when another process holds it.
  explicit SaveFolder(const std::filesystem::path& root);
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

 private:
  int fd_ = -1;
};

// BadInput when another process holds the folder `root`, which is there.
void check_not_taken(const std::filesystem::path& root);

// Folders of `root` that are called like checkpoints, with their steps, newest first. None where `root` is
// missing.
std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints_in(const std::filesystem::path& root);

// Removes the checkpoints that are older than the options.retain newest good ones, of which there are at
// least two. Good is one whose manifest is valid and whose files are there in their full size. Each loses its
// name before its files go, so that a kill cannot leave half a checkpoint.
void retire_checkpoints(const std::filesystem::path& root, const SaveOptions& options);

}  // namespace trifold
