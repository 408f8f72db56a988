// Resharding: a checkpoint as a run on another mesh would have saved it, without such a run. No rank, no
// model's memory: the target's boxes are computed from planned meshes, and elements pass through a small
// buffer.
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

// Where a run of `model` on the mesh, pipeline and ZeRO stage of `target` stores tensors of these kinds
// ("param", "adam_m", ...; "param" first): one list for each rank, empty for ranks that own nothing. BadInput
// where the model cannot be cut like that.
ShardLayout layout_of_run(const ModelConfig& model, const ReshardConfig& target,
                          const std::vector<std::string>& kinds, DType dtype);

// All tensors cut into `files` parts of about the same size, whatever mesh.
ShardLayout layout_of_files(const std::vector<TensorInfo>& tensors, int files);

// Writes the checkpoint `from` as the configuration says under config.save; returns its folder. Equal to the
// last bit, shard files and view, to what a run on the target mesh would have saved. Memory:
// config.max_memory MiB beyond tables of boxes. A kill leaves a temporary folder and no checkpoint. It is a
// checkpoint of the same run: BadInput where config.save holds those of another, or a run is saving there.
// `warn` gets what the user should know although the checkpoint was written.
std::filesystem::path reshard(CheckpointReader& from, const ReshardConfig& config,
                              const std::function<void(std::string)>& warn = {});

}  // namespace trifold
