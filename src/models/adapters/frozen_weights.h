// A checkpoint of adapters holds no frozen weights, but the folder that has them, a checkpoint or a Hugging Face folder,
// and an identity by which a reader knows that the folder still has the same weights:
//
//   state: {"frozen_weights": {"path": "/models/llama", "id": "..."}}
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/reader.h"

namespace trifold {

inline constexpr const char* kFrozenWeights = "frozen_weights";

// The identity of the weights in a folder: of a checkpoint its save's, otherwise a checksum of the sizes and of parts of
// the safetensors files.
std::string identity_of_weights(const CheckpointReader& from);

// What a checkpoint of adapters stores about the folder that `from` reads. If that holds adapters itself, the adapters
// are loaded from it, and its frozen weights are theirs too.
nlohmann::json frozen_weights_of(const CheckpointReader& from);

// A reader of the adapters and of the frozen weights together; `adapters` itself if it names none. BadInput if the folder
// is missing, or has other weights than it had.
CheckpointReader with_frozen_weights(CheckpointReader adapters);

// A reader of both `adapters` and `frozen`, which has the description of the former, with `frozen_weights` in its state.
CheckpointReader joined(CheckpointReader adapters, CheckpointReader frozen);

// A reader of the model without adapters, whose weights are W + s B A or, with magnitudes, row by row
// magnitude (W + s B A) / |W + s B A|; W has the values that the run has, if it quantized the frozen weights. `from`
// itself if it has no adapters.
CheckpointReader merged(CheckpointReader from);

}  // namespace trifold
