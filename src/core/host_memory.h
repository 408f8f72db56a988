// The memory of this host. All functions respect control groups (versions 1 and 2): they return the minimum over the
// system and this process's groups, or 0 if the system does not report it. `root` replaces the root of the files in
// /proc and /sys, for tests.
#pragma once

#include <cstddef>
#include <filesystem>

namespace trifold {

// Total bytes of memory and swap space, used or not.
size_t host_memory(const std::filesystem::path& root = "/");

// Total bytes of memory without swap space; only this memory can be pinned.
size_t physical_memory(const std::filesystem::path& root = "/");

// Bytes that this process can still allocate without swapping, as the system reports them. The file cache counts as
// free, because it can be evicted.
size_t free_memory(const std::filesystem::path& root = "/");

// Bytes of this process in physical memory, file mappings included.
size_t resident_memory(const std::filesystem::path& root = "/");

}  // namespace trifold
