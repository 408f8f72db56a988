// Lists the files of a folder and of the folders in it, and names for messages.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/function_ref.h"

namespace trifold {

// All regular files below a folder, ordered by path, except hidden ones (a name on the path begins with a dot). Links
// to folders are not followed, but reported to `on_folder_link`. BadInput for a folder that cannot be read.
std::vector<std::filesystem::path> files_below(
    const std::string& folder, FunctionRef<void(const std::filesystem::path&)> on_folder_link);

// "a.md, b.py and 3 more": the first eight names, printable.
std::string list_of_names(const std::vector<std::string>& names);

}  // namespace trifold
