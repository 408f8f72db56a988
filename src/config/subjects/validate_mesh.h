// Checks of the layout over ranks: mesh, tensor and pipeline parallel sizes, schedule.
#pragma once

#include <cstdint>
#include <optional>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

// Whether each number of ranks is valid by itself, so that they can be multiplied and divided.
bool sound_sizes(const Problems& problems);
// The sizes of the mesh against each other.
void check_mesh(const MeshConfig& mesh, Problems& problems);
// The given size, or else ranks / (tensor x context x pipeline), at least 1. The sizes must be sound.
int64_t data_parallel_size(const MeshConfig& mesh);
// The number of ranks that sum gradients of the same parameters, and may shard them: data x context.
int64_t gradient_ranks(const MeshConfig& mesh);
// The global batch against micro-batch and data parallel size.
void check_batch(const BatchConfig& batch, const MeshConfig& mesh, Problems& problems);
// The model against the tensor axis.
void check_tensor(const PretrainConfig& config, Problems& problems);
// The model and its positions against the context axis.
void check_context(const PretrainConfig& config, Problems& problems);
// Tiles of rows against the rows of a micro-batch, and what the MLP is.
void check_tiled_mlp(const PretrainConfig& config, Problems& problems);
void check_offloaded_layers(const PretrainConfig& config, Problems& problems);
// Stages, schedule and number of micro-batches; for asynchronous schedules also the options that need a drained
// pipeline.
void check_pipeline(const PretrainConfig& config, Problems& problems);
// The number given by --zero-group-size, if it is a number.
std::optional<int> given_group_size(const ZeroConfig& zero);
// Sharding over the data axis (stages of ZeRO).
void check_zero(const PretrainConfig& config, Problems& problems);

// --tune-products requires a CUDA device.
void check_tuning(const MeshConfig& mesh, Problems& problems);
// --no-deterministic-mode requires a CUDA device and excludes options that compare bits.
void check_determinism(const PretrainConfig& config, Problems& problems);
// --enable-cuda-graph requires a CUDA device and no tensor parallelism.
void check_graphs(const MeshConfig& mesh, Problems& problems);

}  // namespace trifold
