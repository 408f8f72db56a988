// Frozen weights as a model with quantized ones (AdapterConfig::quantize_base) computes with them.
#pragma once

#include "checkpoint/reader.h"
#include "config/fields/config.h"

namespace trifold {

// A reader of `from` in which the weights that `model` quantizes have the values that the run has, f32 numbers. `from`
// itself if there are none.
CheckpointReader dequantized(CheckpointReader from, const ModelConfig& model);

}  // namespace trifold
