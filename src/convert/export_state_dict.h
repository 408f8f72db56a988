// Converts the checkpoint of a model from a file (graph/model_file.h) to the state dictionary of the exported module, in
// safetensors files.
#pragma once

#include "checkpoint/reader.h"
#include "config/fields/config.h"
#include "convert/convert.h"

namespace trifold {

// Writes the folder config.save as export_model does (convert/convert.h), without config.json. The model's file gives
// names, shapes and element types; floats have config.dtype if it is given. A tied tensor is written under each of its
// names. The file also gives the values of buffers and unused parameters, which checkpoints do not have.
// BadInput if the file is missing, or is not the one with which the model was trained.
Converted export_state_dict(CheckpointReader& from, const ConvertConfig& config);

}  // namespace trifold
