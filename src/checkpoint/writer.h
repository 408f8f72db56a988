// Saving a checkpoint: every rank writes the boxes it owns to a file of its own, rank 0 adds the manifest,
// and the rename of the directory to its final name is the moment from which the checkpoint exists.
#pragma once

#include <filesystem>
#include <span>

#include "checkpoint/manifest.h"
#include "comm/communicator.h"
#include "mesh/shard_spec.h"

namespace trifold {

// A box of a global tensor and its elements: `data` is the row-major block spec.local, whatever its shape.
// Names start with what the numbers are: "param/...", "adam_m/...", "adam_v/...". A flat slice of a block is
// given as one NamedTensor for each of its boxes (rects_of_range), which follow each other in its memory.
struct NamedTensor {
  ShardSpec spec;
  Tensor data;
};

// Collective over `world`. Writes the checkpoint <root>/step_<ten digits> and returns its path.
//   * `mine` are the boxes this rank holds; replicated ones are written by their owner only (is_owner), empty
//   ones by
//     nobody. Together the owned boxes of all ranks must hold every element of every tensor exactly once.
//   * Everything goes to <root>/step_N.tmp-<random> first. A checkpoint of the same step is replaced, at once
//   where the
//     file system can exchange two directories.
//   * <root>/LATEST is updated last; it is a hint for people and scripts, readers look at the directories.
//   * A failure on any rank is an Error on all ranks; the temporary directory is removed and nothing else is
//   touched.
// `root` must be on a file system all ranks share. `meta` of rank 0 counts.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, const CheckpointMeta& meta,
                                      std::span<const NamedTensor> mine, Communicator& world,
                                      const MeshCoords& coords);

// "step_0000000010"
std::string step_directory_name(int64_t step);

}  // namespace trifold
