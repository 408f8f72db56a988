// A report about a Hugging Face folder, as text; `trifold inspect` prints it.
#pragma once

#include <string>

#include "models/folders/hugging_face_folder.h"

namespace trifold {

// Family, options of the model that differ from their defaults, tokenizer, the table of the tensors in the files (dtype,
// shape, bytes) with the parameters that they hold here, and the number of parameters.
std::string describe(const HuggingFaceFolder& folder);

}  // namespace trifold
