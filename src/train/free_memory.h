// The memory that this host has left.
#pragma once

#include <cstddef>
#include <filesystem>

namespace trifold {

// Bytes that this process can still take without swapping: what the system says is available, or what the
// control groups of the process (versions 1 and 2) leave, if that is less; the cache of files, which gives
// way, counts as free. 0 where the system does not say. `root` is another root of the files in /proc and
// /sys, for tests.
size_t free_memory(const std::filesystem::path& root = "/");

}  // namespace trifold
