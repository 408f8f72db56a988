#include "launch/rehearsal_lines.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace trifold::launch {

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
