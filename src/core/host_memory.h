// The memory of this host. Both count with control groups (versions 1 and 2): what those of this process
// allow or leave, if that is less than the system has. 0 where the system does not say. `root` is another
// root of the files in /proc and /sys, for tests.
#pragma once

#include <cstddef>
#include <filesystem>

namespace trifold {

// Bytes of memory and swap space that the processes of this host can use together, whatever is in use now.
size_t host_memory(const std::filesystem::path& root = "/");

// Bytes that this process can still take without swapping: what the system says is available; the cache of
// files, which gives way, counts as free.
size_t free_memory(const std::filesystem::path& root = "/");

}  // namespace trifold
