// ScratchFolder is a folder for the unfinished output of a command. It is in the folder of that output, so that the
// output gets its name by a rename, or in the system's folder for temporary files (TMPDIR).
//
// A scratch folder has a random name, `<target>.tmp-<16 hexadecimal digits>`, contains an empty file kScratchMark,
// which is removed after everything else in it, and has a lock on that file (flock), which the kernel releases at any
// end of the process. It is removed
//   - by its destructor,
//   - by remove_live_scratch() when a signal ends the process (launch/process/signals.h),
//   - and after a kill by the next command that makes one for the same target: it removes folders of such a name that
//     belong to this user, have the mark and are not locked. Nothing else is ever removed.
// On a file system without locks, folders that a kill leaves remain.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/function_ref.h"

namespace trifold {

inline constexpr std::string_view kScratchMark = ".trifold-scratch";

class ScratchFolder {
 public:
  // Makes a folder next to `target`, which need not exist, and removes scratch folders that killed commands left for
  // the same target. Throws Error if no folder can be made there.
  explicit ScratchFolder(const std::filesystem::path& target);
  // A folder in TMPDIR. BadInput if it cannot be made.
  static ScratchFolder temporary();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The path of a file or folder in this folder, which the caller makes.
  std::filesystem::path file(std::string_view name) const { return path_ / name; }

  // Runs `rename`, which moves files out of this folder or into it, while no signal can end the process.
  static void protect(FunctionRef<void()> rename);
  // Gives a file or folder in this folder the name `target`. BadInput if that exists, unless it is an empty folder.
  void move_out(std::string_view name, const std::filesystem::path& target) const;
  // Removes the folder early, as the destructor does. Returns the first error.
  std::error_code remove();

 private:
  // Makes and locks a folder whose name begins with `begin`. False if another process removed it as abandoned before it
  // was locked.
  bool make(const std::filesystem::path& begin);

  std::filesystem::path path_;
  int lock_ = -1;
};

// Removes the scratch folders that killed commands left for `target` in `folder` or, if `target` is empty, for any
// target. Returns messages about folders that cannot be removed. `alone`: no other process writes in `folder`, so that
// folders may be removed without a lock if the file system has none.
std::vector<std::string> remove_abandoned_scratch(const std::filesystem::path& folder,
                                                  const std::string& target = {}, bool alone = false);

// For the end of the process on a signal. A signal handler may call has_live_scratch. remove_live_scratch removes all
// scratch folders of the process; threads that make, rename or remove one afterwards wait forever.
bool has_live_scratch();
void remove_live_scratch();

// Opens a new file for reading and writing in `folder` that has no name and disappears with its last descriptor.
// Returns -1, with errno, if that is impossible.
int open_unnamed_file(const std::filesystem::path& folder);

}  // namespace trifold
