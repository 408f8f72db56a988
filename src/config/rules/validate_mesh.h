// Checks of what is laid out over ranks: mesh, tensor and pipeline parallel sizes, schedule.
#pragma once

#include <cstdint>
#include <optional>

#include "config/fields/config.h"
#include "config/fields/problems.h"

namespace trifold {

// Whether the numbers of ranks are possible by themselves, so that they can be multiplied and divided.
bool sound_sizes(const Problems& problems);
// The sizes of the mesh against each other.
void check_mesh(const MeshConfig& mesh, Problems& problems);
// What is given, else ranks / (tensor x context x pipeline), at least 1. The sizes must be sound.
int64_t data_parallel_size(const MeshConfig& mesh);
// The ranks that sum the gradients of what they hold alike, and may share it out: data x context.
int64_t gradient_ranks(const MeshConfig& mesh);
// The global batch against micro-batch and data parallel size.
void check_batch(const BatchConfig& batch, const MeshConfig& mesh, Problems& problems);
// Axes that a mixture of experts cannot be cut over.
void check_experts_mesh(const PretrainConfig& config, Problems& problems);
// The model against the tensor axis.
void check_tensor(const PretrainConfig& config, Problems& problems);
// The model and its positions against the context axis.
void check_context(const PretrainConfig& config, Problems& problems);
// Stages, schedule and number of micro-batches; for asynchronous schedules also what needs a drained
// pipeline.
void check_pipeline(const PretrainConfig& config, Problems& problems);
// The number that --zero-group-size says; absent where it says none.
std::optional<int> given_group_size(const ZeroConfig& zero);
// What is shared out over the data axis (stages of ZeRO).
void check_zero(const PretrainConfig& config, Problems& problems);

// What --tune-products needs: a CUDA device.
void check_tuning(const MeshConfig& mesh, Problems& problems);
// What --no-deterministic-mode needs: a CUDA device, and nobody who compares bits.
void check_determinism(const PretrainConfig& config, Problems& problems);
// What --enable-cuda-graph needs: a CUDA device, and no tensor ranks.
void check_graphs(const MeshConfig& mesh, Problems& problems);

// What --tf32 needs: a CUDA device, and products of f32.
void check_tf32(const PrecisionConfig& precision, const MeshConfig& mesh, Problems& problems);
// What --fp8 needs: bf16, a CUDA device, and products whose extents are multiples of 16 on every rank.
void check_fp8(const PretrainConfig& config, Problems& problems);

}  // namespace trifold
