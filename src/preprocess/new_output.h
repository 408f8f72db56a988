// The folder in which preprocess builds its output.
#pragma once

#include <memory>
#include <string>

#include "files/scratch_folder.h"

namespace trifold {

// Makes a scratch folder next to `output`, which it becomes once the data set is complete. BadInput if `output` exists
// or the folder cannot be made: checked early, before the inputs are read.
std::unique_ptr<ScratchFolder> scratch_beside(const std::string& output);

}  // namespace trifold
