// Problems: the list that a check of a whole configuration fills (see validate.h).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/option.h"

namespace trifold {

// Values that are wrong by themselves are found first, through the table; comparisons between values then ask
// `sound`, so that one mistake is reported once, and sums and products cannot overflow.
class Problems {
 public:
  explicit Problems(const OptionTable& table) {
    for (const Option& option : table.options())
      if (auto problem = range_problem(option)) {
        list_.push_back(std::move(*problem));
        wrong_.insert(option.name);
      }
  }

  bool sound(std::initializer_list<const char*> names) const {
    return std::none_of(names.begin(), names.end(), [&](const char* name) { return wrong_.count(name) > 0; });
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    list_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
  std::set<std::string> wrong_;
};

// "128 and 132 are", "4 is": the multiples of `unit` around `value`, which is none.
std::string multiples_around(int64_t value, int64_t unit);

}  // namespace trifold
