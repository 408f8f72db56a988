#include "core/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "core/control_groups.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr size_t kKib = 1024;

// The number after `name` in a file of lines "name number"; with an empty name, the first word of the file.
// Empty if there is none, or if it is "max" (no limit).
std::optional<size_t> number_in(const fs::path& path, const std::string& name = {}) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string found;
    if (!name.empty() && (!(words >> found) || found != name)) continue;
    size_t number = 0;
    return words >> number ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

struct GroupFiles {
  const char *limit, *usage, *cache;  // cache: the line of memory.stat
  const char *swap, *limit_and_swap;  // limits of swap alone, and of memory and swap; null: no such file
};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file", "memory.swap.max", nullptr};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                               nullptr, "memory.memsw.limit_in_bytes"};

// The smallest result of `bytes_of(folder, files)` over the control groups of this process and their ancestors.
template <class BytesOf>
size_t least_of_groups(const fs::path& root, BytesOf bytes_of) {
  size_t least = SIZE_MAX;
  for_each_group(root, "memory", [&](const fs::path& folder, bool version_2) {
    least = std::min(least, bytes_of(folder, version_2 ? kVersion2 : kVersion1));
  });
  return least;
}

size_t sum(size_t a, size_t b) { return a > SIZE_MAX - b ? SIZE_MAX : a + b; }

}  // namespace

size_t host_memory(const fs::path& root) {
  const auto memory = number_in(root / "proc/meminfo", "MemTotal:");
  if (!memory) return 0;
  const size_t swap = number_in(root / "proc/meminfo", "SwapTotal:").value_or(0) * kKib;
  const size_t allowed = least_of_groups(root, [&](const fs::path& folder, const GroupFiles& files) {
    const auto limit_in = [&](const char* name) {
      return name == nullptr ? SIZE_MAX : number_in(folder / name).value_or(SIZE_MAX);
    };
    return std::min(sum(limit_in(files.limit), std::min(swap, limit_in(files.swap))),
                    limit_in(files.limit_and_swap));
  });
  return std::min(*memory * kKib + swap, allowed);
}

size_t physical_memory(const fs::path& root) {
  const auto memory = number_in(root / "proc/meminfo", "MemTotal:");
  if (!memory) return 0;
  const size_t allowed = least_of_groups(root, [](const fs::path& folder, const GroupFiles& files) {
    return number_in(folder / files.limit).value_or(SIZE_MAX);
  });
  return std::min(*memory * kKib, allowed);
}

size_t free_memory(const fs::path& root) {
  const auto available = number_in(root / "proc/meminfo", "MemAvailable:");
  if (!available) return 0;
  const size_t left = least_of_groups(root, [](const fs::path& folder, const GroupFiles& files) {
    const auto limit = number_in(folder / files.limit);
    const auto usage = number_in(folder / files.usage);
    if (!limit || !usage) return SIZE_MAX;
    const size_t cache = std::min(*usage, number_in(folder / "memory.stat", files.cache).value_or(0));
    return *limit - std::min(*limit, *usage - cache);
  });
  return std::max<size_t>(std::min(*available * kKib, left), 1);
}

size_t resident_memory(const fs::path& root) {
  std::ifstream pages(root / "proc/self/statm");
  size_t all = 0, resident = 0;
  pages >> all >> resident;
  return pages ? resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace trifold
