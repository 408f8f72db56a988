// The identity of the run to which a checkpoint belongs: random digits, which a run gets when it starts from nothing or
// loads only weights. The manifests of its checkpoints contain it, and a run that continues from one of them keeps it.
// The checkpoints of a folder are thus known to belong to one run, and no other run saves into it: a reader opens the
// highest step of a folder, whichever run wrote it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trifold {

struct RunIdentity {
  std::string id;
  // The checkpoint, or folder of checkpoints, from which the run starts; absent for a start from nothing.
  std::optional<std::filesystem::path> from;
};

// A new identity for a run that starts from nothing, or loads weights from `from`.
RunIdentity new_run(std::optional<std::filesystem::path> from = {});

// The identity in the checkpoint (the newest valid one if `from` is a folder of them). A new identity if the checkpoint
// cannot be read or has none, because it was written before identities existed.
RunIdentity continued_run(const std::filesystem::path& from);

// Throws BadInput if `root`, a --save, holds checkpoints of another run, or is itself a checkpoint.
// Checkpoints without an identity count as another run's. Does not throw if the run starts from `root` or
// from a checkpoint in it.
void check_owner(const std::filesystem::path& root, const RunIdentity& run);

}  // namespace trifold
