// The run that a checkpoint belongs to. A run gets an identity, random digits, when it starts from nothing or
// from weights only; the manifest of each of its checkpoints has it, and a run that continues from one of
// them keeps it. So a folder is known to hold the checkpoints of one run, and no other run saves into it: a
// reader takes the highest step of a folder, whichever run wrote it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trifold {

struct RunIdentity {
  std::string id;
  // The start of the run: a checkpoint or a folder of them; absent: nothing.
  std::optional<std::filesystem::path> from;
};

// A new identity for a run that starts from nothing, or takes weights from `from`.
RunIdentity new_run(std::optional<std::filesystem::path> from = {});

// The identity of the checkpoint (the newest valid one, where `from` is a folder of them); a new one where it
// has none, as those written before identities have, or cannot be read.
RunIdentity continued_run(const std::filesystem::path& from);

// BadInput if `root`, a --save, holds checkpoints of another run, or is itself a checkpoint. Checkpoints
// without an identity count as another run's. Never if the run starts from `root`, or from a checkpoint in
// it.
void check_owner(const std::filesystem::path& root, const RunIdentity& run);

}  // namespace trifold
