// ScratchFolder: a folder for the unfinished output of a command. It lies beside the place of that output, so that the
// output gets its name by a rename, or in the system's folder for temporary files (TMPDIR).
//
// A scratch folder has a random name, `<target>.tmp-<16 hexadecimal digits>`, an empty file kScratchMark in it, which
// is never removed before anything else there, and a lock on that file (flock), which the kernel releases when the
// process ends, however it ends. It is removed
//   - by its destructor,
//   - by remove_live_scratch() when a signal ends the process (launch/signals.h),
//   - and after a kill by the next command that makes one for the same target: it removes folders of such a name that
//     belong to this user, have the mark and are not locked. Nothing else is ever removed.
// On a file system without locks the folders that a kill leaves stay.
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
  // Makes a folder beside `target`, which need not exist, and removes those that killed commands left beside it. Throws
  // Error if no folder can be made there.
  explicit ScratchFolder(const std::filesystem::path& target);
  // A folder in TMPDIR. BadInput if it cannot be made.
  static ScratchFolder temporary();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The path of a file or folder in it, which the caller makes.
  std::filesystem::path file(std::string_view name) const { return path_ / name; }

  // Runs `rename`, which moves files out of this folder or into it, while no signal can end the process.
  static void protect(FunctionRef<void()> rename);
  // Gives a file or folder in this folder the name `target`. BadInput if that exists, unless it is an empty folder.
  void move_out(std::string_view name, const std::filesystem::path& target) const;
  // Removes the folder early, as the destructor does. Returns the first error.
  std::error_code remove();

 private:
  // Makes and locks a folder whose name begins with `begin`. False if another process took it for an abandoned one before
  // it was locked.
  bool make(const std::filesystem::path& begin);

  std::filesystem::path path_;
  int lock_ = -1;
};

// Removes the scratch folders that killed commands left beside `target`, or, where `target` is empty, beside anything
// in `folder`. Returns messages about those that cannot be removed. `alone`: the caller has made sure that no other
// process writes in `folder`, so that folders may be removed without a lock where the file system has none.
std::vector<std::string> remove_abandoned_scratch(const std::filesystem::path& folder,
                                                  const std::string& target = {}, bool alone = false);

// For the end of the process on a signal. The first may be called by a signal handler. The second removes all scratch
// folders of the process; threads that make, rename or remove one afterwards wait forever.
bool has_live_scratch();
void remove_live_scratch();

// Opens a new file for reading and writing in `folder` that has no name and disappears with its last descriptor.
// Returns -1, with errno, if there can be none.
int open_unnamed_file(const std::filesystem::path& folder);

}  // namespace trifold
