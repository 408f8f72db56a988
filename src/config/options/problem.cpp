#include "config/options/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace trifold {

std::string text_of(const Problem& problem) {
  return problem.right.empty() ? problem.wrong : fmt::format("{}: {}", problem.wrong, problem.right);
}

std::vector<std::string> texts_of(std::span<const Problem> problems) {
  std::vector<std::string> texts;
  std::transform(problems.begin(), problems.end(), std::back_inserter(texts), text_of);
  return texts;
}

std::string multiples_around(int64_t value, int64_t unit) {
  const int64_t low = value / unit * unit;
  return low == 0 ? fmt::format("{} is", unit) : fmt::format("{} and {} are", low, low + unit);
}

void throw_problems(const std::vector<std::string>& list) {
  if (list.empty()) return;
  if (list.size() == 1) bad_input("{}", list[0]);
  bad_input("{} problems:\n  - {}", list.size(), fmt::join(list, "\n  - "));
}

void throw_problems(const std::vector<Problem>& list) { throw_problems(texts_of(list)); }

}  // namespace trifold
