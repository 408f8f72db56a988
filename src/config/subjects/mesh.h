// The ranks, the axes over which they share a model, and the devices that compute.
#pragma once

#include <cstdint>
#include <optional>

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

// The number of ranks and how each computes, for every command that runs on ranks. Starts no group.
void add_ranks(OptionTable& table, MeshConfig& mesh);
void add_host(OptionTable& table, MeshConfig& mesh);
void add_mesh(OptionTable& table, MeshConfig& mesh);
// The ranks of one process that continue texts, in a group of their own.
void add_sampling_ranks(OptionTable& table, int& tensor_ranks, std::optional<int>& threads);
// For commands that train; continues the group of add_mesh.
void add_device_choices(OptionTable& table, MeshConfig& mesh);

// Whether each number of ranks, taken alone, is valid, so that they can be multiplied and divided.
bool sound_sizes(const Problems& problems);
// Checks the sizes of the mesh against each other.
void check_mesh(const MeshConfig& mesh, Problems& problems);
// The given size, or else ranks / (tensor x context x pipeline), at least 1. Requires sound_sizes.
int64_t data_parallel_size(const MeshConfig& mesh);
// The number of ranks that sum gradients of the same parameters, and may shard them: data x context.
int64_t gradient_ranks(const MeshConfig& mesh);
// Checks the global batch against micro-batch and data parallel size.
void check_batch(const BatchConfig& batch, const MeshConfig& mesh, Problems& problems);
// Checks the model against the tensor axis.
void check_tensor(const PretrainConfig& config, Problems& problems);
// Checks the model and its positions against the context axis.
void check_context(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
