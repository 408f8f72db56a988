// Saves a checkpoint: every rank writes the boxes it owns to its own file and rank 0 adds the manifest. The checkpoint
// exists from the moment its directory is renamed to its final name.
#pragma once

#include <filesystem>
#include <span>

#include "checkpoint/new_checkpoint.h"
#include "checkpoint/stored_rows.h"
#include "comm/communicator.h"
#include "mesh/shard_spec.h"

namespace trifold {

// A box of a global tensor and its elements: `data` is the row-major block spec.local, in any shape. Names start with
// the kind: "param/...", "adam_m/...", "adam_v/...". A flat slice of a block is given as one NamedTensor for each of
// its boxes (rects_of_range), which are consecutive in its memory.
struct NamedTensor {
  ShardSpec spec;
  Tensor data;
  bool on_host = false;          // in host memory even if operations have a device
  StoredRows* stored = nullptr;  // if set, has the elements: `data` is only their type and shape
  // Bytes of a row, that is of one index of the box's first dim.
  size_t row_bytes() const {
    return data.bytes() / static_cast<size_t>(spec.local.extent.rank() == 0 ? 1 : spec.local.extent[0]);
  }
};

// Collective over `world`. Writes the checkpoint <root>/step_<ten digits> and returns its path.
//   * `mine` are the boxes this rank holds; replicated ones are written by the first of the ranks that hold
//     them (counts_here), empty ones are not written. Together the written boxes must hold every element of
//     every tensor exactly once.
//   * Throws, before anything is written, if the disk has too little space, or a value is infinite or NaN.
//   * Everything goes to <root>/step_N.tmp-<random> first (checkpoint/new_checkpoint.h).
//   * A failure on any rank is an Error on all ranks; the temporary directory is removed and nothing else is
//     touched.
// `root` must be on a file system that all ranks share. `meta` and `options.retain` of rank 0 count.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, const CheckpointMeta& meta,
                                      std::span<const NamedTensor> mine, Communicator& world,
                                      const MeshCoords& coords, const SaveOptions& options = {});

// The boxes of `mine` that this rank writes: owned, and not empty. Throws if one cannot be stored.
std::vector<NamedTensor> owned_boxes(std::span<const NamedTensor> mine, const MeshCoords& coords);

}  // namespace trifold
