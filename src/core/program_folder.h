// The location of the running program. An installed tree can be moved, so the program finds the files
// installed with it (modules, configurations) relative to itself.
#pragma once

#include <filesystem>

namespace trifold {

// The folder of the running executable, symbolic links resolved; empty if /proc is not available.
std::filesystem::path program_folder();

}  // namespace trifold
