// The unfinished output of preprocess.
#pragma once

#include <memory>
#include <string>

#include "files/scratch_folder.h"

namespace trifold {

// A scratch folder for the data set that becomes `output`. BadInput if that exists or cannot be made, so that it is known
// before the inputs are read.
std::unique_ptr<ScratchFolder> scratch_beside(const std::string& output);

}  // namespace trifold
