#include "train/free_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace trifold {

namespace {

namespace fs = std::filesystem;

// The number behind `name` in a file with a name and a number a line; with an empty name, the first word of
// the file. Nothing where there is none, or "max", which stands for no limit.
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
};

// The least that a group and those around it leave. Inside a container the group's path may be that of the
// host, which is not there: the root of the tree holds the limit then.
size_t left_in_groups(const fs::path& tree, const std::string& group, const GroupFiles& files) {
  size_t least = SIZE_MAX;
  for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
    const fs::path folder = tree / path;
    const auto limit = number_in(folder / files.limit);
    const auto usage = number_in(folder / files.usage);
    if (limit && usage) {
      const size_t cache = std::min(*usage, number_in(folder / "memory.stat", files.cache).value_or(0));
      least = std::min(least, *limit - std::min(*limit, *usage - cache));
    }
    if (path.empty()) return least;
  }
}

}  // namespace

size_t free_memory(const fs::path& root) {
  constexpr size_t kKib = 1024;
  const auto available = number_in(root / "proc/meminfo", "MemAvailable:");
  if (!available) return 0;
  size_t least = *available * kKib;
  // Lines are "0::/path" of version 2, "4:memory:/path" of version 1.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,")
      least = std::min(least, left_in_groups(root / "sys/fs/cgroup", path,
                                             {"memory.max", "memory.current", "inactive_file"}));
    else if (controllers.find(",memory,") != std::string::npos)
      least = std::min(
          least, left_in_groups(root / "sys/fs/cgroup/memory", path,
                                {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}));
  }
  return std::max<size_t>(least, 1);
}

}  // namespace trifold
