// The memory of this host. All functions respect control groups (versions 1 and 2): the limit or the
// remainder of this process's groups counts if it is less than the system's. 0 if the system does not say.
// `root` replaces the root of the files in /proc and /sys, for tests.
#pragma once

#include <cstddef>
#include <filesystem>

namespace trifold {

// Bytes of memory and swap space that the processes of this host can use together, whatever is in use now.
size_t host_memory(const std::filesystem::path& root = "/");

// The same without swap space: what can be pinned.
size_t physical_memory(const std::filesystem::path& root = "/");

// Bytes that this process can still allocate without swapping: what the system reports as available. The file
// cache counts as free, because it can be evicted.
size_t free_memory(const std::filesystem::path& root = "/");

}  // namespace trifold
