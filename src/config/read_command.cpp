#include "config/read_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

namespace trifold {
namespace {

// Whether `text` speaks of option `name`, and not of a longer one that begins alike.
bool mentions(const std::string& text, const std::string& name) {
  const std::string option = "--" + name;
  for (size_t at = text.find(option); at != std::string::npos; at = text.find(option, at + 1)) {
    const size_t end = at + option.size();
    if (end == text.size() || (text[end] != '-' && !std::isalnum(static_cast<unsigned char>(text[end]))))
      return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> all_problems(const Parsed& parsed, const std::vector<std::string>& whole) {
  std::vector<std::string> list = parsed.problems;
  std::copy_if(whole.begin(), whole.end(), std::back_inserter(list), [&](const std::string& problem) {
    return std::none_of(parsed.doubtful.begin(), parsed.doubtful.end(),
                        [&](const std::string& name) { return mentions(problem, name); });
  });
  // The 0 of an option that is not given is a missing value; one that is given is a wrong value.
  for (std::string& problem : list)
    for (const auto& [name, origin] : parsed.origins)
      if (const std::string missing = "--" + name + " needs a value: "; problem.starts_with(missing))
        problem = fmt::format("--{} 0 is not possible: it must be {}", name, problem.substr(missing.size()));
  return list;
}

}  // namespace trifold
