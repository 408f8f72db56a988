#include "launch/rehearse/rehearsal_lines.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/thread_pool.h"

namespace trifold::launch {

void take_cores(MeshConfig& mesh) {
  if (mesh.threads_per_rank || mesh.device == ComputeDevice::Cuda) return;
  mesh.threads_per_rank = std::max(1, available_cores() / mesh.ranks_per_node.value_or(1));
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

void print_failures(const std::vector<std::string>& failures) {
  if (failures.empty()) return fmt::print("result      nothing failed\n");
  for (const std::string& failure : failures) fmt::print("fails       {}\n", failure);
}

void print_rehearsal_command(const std::vector<std::string>& words) {
  if (!words.empty()) fmt::print("rehearse    trifold rehearse {}\n", fmt::join(words, " "));
}

}  // namespace trifold::launch
