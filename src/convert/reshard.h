// Resharding: rewrites a checkpoint as a run on another mesh would have saved it. It starts no ranks and needs no
// memory for the model: the target's boxes are computed from planned meshes, and elements pass through a small buffer.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/shard_file.h"
#include "config/fields/config.h"

namespace trifold {

// The boxes of each file of the target, in the order in which its writer stores them.
using ShardLayout = std::vector<std::vector<ShardBox>>;

// The boxes that a run of `model` on the mesh, pipeline and ZeRO stage of `target` stores of tensors of these kinds
// ("param", "adam_m", ...; "param" first): one list for each rank, empty for ranks that own nothing. BadInput if the
// model cannot be sharded like that.
ShardLayout layout_of_run(const ModelConfig& model, const ReshardConfig& target,
                          const std::vector<std::string>& kinds, DType dtype);

// All tensors cut into `files` parts of about equal size, independently of a mesh.
ShardLayout layout_of_files(const std::vector<TensorInfo>& tensors, int files);

// Writes the checkpoint `from` under config.save as configured; returns its folder. Shard files and view are
// bit-identical to the files that a run on the target mesh would have saved. Memory: config.max_memory MiB beyond
// tables of boxes. A kill leaves a temporary folder but no checkpoint. The result belongs to the same run: BadInput if
// config.save holds checkpoints of another run, or if a run is saving there. `warn` receives notes for the user about a
// checkpoint that was written.
std::filesystem::path reshard(CheckpointReader& from, const ReshardConfig& config,
                              const std::function<void(std::string)>& warn = {});

}  // namespace trifold
