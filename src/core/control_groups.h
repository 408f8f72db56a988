// The control groups of this process (versions 1 and 2), which limit its memory and processor time.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/function_ref.h"

namespace trifold {

// Calls `visit` with the folder of each group of this process that has `controller` ("memory", "cpu"), and of its
// ancestors up to the root of the tree, and whether the tree is of version 2. Folders may not exist: inside a
// container, a group's path may be that on the host, and the root of the tree has the limit. `root` replaces the root
// of the files in /proc and /sys, for tests.
void for_each_group(const std::filesystem::path& root, std::string_view controller,
                    FunctionRef<void(const std::filesystem::path& folder, bool version_2)> visit);

// The processor time that the groups of this process allow, in cores (1.5: three seconds of it in two); 0: no limit.
// available_cores (core/thread_pool.h) has the affinity mask, which is another limit.
double core_limit(const std::filesystem::path& root = "/");

}  // namespace trifold
