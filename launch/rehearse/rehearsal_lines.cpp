#include "launch/rehearse/rehearsal_lines.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trifold::launch {

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

void print_failures(const RankFailures& failures) {
  if (failures.empty()) return fmt::print("result      nothing failed\n");
  for (const std::string& failure : failures.after_reports()) fmt::print("fails       {}\n", failure);
}

std::vector<int> first_fullest_last(std::span<const size_t> bytes) {
  const auto fullest = static_cast<int>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  std::vector<int> places;
  for (const int place : {0, fullest, static_cast<int>(bytes.size()) - 1})
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  return places;
}

void print_rehearsal_command(const std::vector<std::string>& words) {
  if (!words.empty()) fmt::print("rehearse    trifold rehearse {}\n", fmt::join(words, " "));
}

}  // namespace trifold::launch
