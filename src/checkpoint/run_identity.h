// The run that a checkpoint belongs to. A run gets an identity, random digits, when it starts from nothing or
// only takes weights; the manifests of its checkpoints contain it, and a run that continues from one of them
// keeps it. So the checkpoints of a folder are known to belong to one run, and no other run saves into it: a
// reader takes the highest step of a folder, whichever run wrote it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trifold {

struct RunIdentity {
  std::string id;
  // The checkpoint, or folder of checkpoints, from which the run starts; absent if from nothing.
  std::optional<std::filesystem::path> from;
};

// A new identity for a run that starts from nothing, or takes weights from `from`.
RunIdentity new_run(std::optional<std::filesystem::path> from = {});

// The identity of the checkpoint (the newest valid one if `from` is a folder of them). A new identity if the
// checkpoint has none, because it was written before there were identities, or cannot be read.
RunIdentity continued_run(const std::filesystem::path& from);

// Throws BadInput if `root`, a --save, holds checkpoints of another run, or is itself a checkpoint.
// Checkpoints without an identity count as another run's. Does not throw if the run starts from `root` or
// from a checkpoint in it.
void check_owner(const std::filesystem::path& root, const RunIdentity& run);

}  // namespace trifold
