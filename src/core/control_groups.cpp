#include "core/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace trifold {

namespace fs = std::filesystem;

void for_each_group(const fs::path& root, std::string_view controller,
                    FunctionRef<void(const fs::path& folder, bool version_2)> visit) {
  // Lines are "0::/path" (version 2) or "4:memory:/path" (version 1).
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find("," + std::string(controller) + ",") == std::string::npos) continue;
    const fs::path tree = version_2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();; path = path.parent_path()) {
      visit(tree / path, version_2);
      if (path.empty()) break;
    }
  }
}

double core_limit(const fs::path& root) {
  double least = std::numeric_limits<double>::infinity();
  for_each_group(root, "cpu", [&](const fs::path& folder, bool version_2) {
    double quota = 0, period = 0;  // microseconds; without a limit the quota is "max" or -1
    if (version_2) {
      std::ifstream(folder / "cpu.max") >> quota >> period;
    } else {
      std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
      std::ifstream(folder / "cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  });
  return least == std::numeric_limits<double>::infinity() ? 0 : least;
}

}  // namespace trifold
