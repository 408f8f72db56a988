// Where the running program lies. An installed tree can be moved, so the program finds what was installed
// with it (modules, configurations) relative to itself.
#pragma once

#include <filesystem>

namespace trifold {

// The folder of the running executable, symbolic links resolved; empty if /proc is not available.
std::filesystem::path program_folder();

}  // namespace trifold
