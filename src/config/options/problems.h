// Problems: the list that a check of a whole configuration fills (see validate.h). A check adds one with
//
//   problems.about("tf32", "device")                          // the options concerned, without "--"
//       .wrong("--tf32 has no effect with --device {}", ...)  // what is wrong, with the value seen
//       .right("leave it out");                               // what would be right
//
// which is printed as "--tf32 has no effect with --device cpu: leave it out".
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/options/check_rules.h"
#include "config/options/option.h"
#include "config/options/problem.h"

namespace trifold {

// The constructor finds values that are wrong alone, by the table. Checks that relate several values must ask `sound`
// first, so that a mistake is reported once and arithmetic on checked values cannot overflow.
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

  // A problem that still lacks its remedy; `right` adds that and puts the problem into the list.
  class Wrong {
   public:
    template <class... Args>
    void right(fmt::format_string<Args...> format, Args&&... args) {
      problem_.right = fmt::format(format, std::forward<Args>(args)...);
      problems_.add(std::move(problem_));
    }

   private:
    friend class Problems;
    Wrong(Problems& problems, Problem problem) : problems_(problems), problem_(std::move(problem)) {}
    Problems& problems_;
    Problem problem_;
  };

  class About {
   public:
    template <class... Args>
    [[nodiscard]] Wrong wrong(fmt::format_string<Args...> format, Args&&... args) {
      problem_.wrong = fmt::format(format, std::forward<Args>(args)...);
      return Wrong(problems_, std::move(problem_));
    }

   private:
    friend class Problems;
    About(Problems& problems, std::vector<std::string> options)
        : problems_(problems), problem_{.options = std::move(options), .wrong = {}, .right = {}} {}
    Problems& problems_;
    Problem problem_;
  };

  template <class... Names>
  [[nodiscard]] About about(const Names&... options) {
    return About(*this, {std::string(options)...});
  }
  [[nodiscard]] About about(std::vector<std::string> options) { return About(*this, std::move(options)); }

  void add(Problem problem) { list_.push_back(std::move(problem)); }

  // Adds a problem for each broken rule that `applies` selects.
  void check_rules(const OptionTable& table, const OptionTable& defaults,
                   FunctionRef<bool(const Option&, const Rule&)> applies) {
    const auto sound = [this](std::string_view option) { return wrong_.count(option) == 0; };
    for (const Option& option : table.options())
      for (Problem& problem : broken_rules(option, {table, defaults, sound, applies}))
        add(std::move(problem));
  }

  // Moves the errors and notes out of the list; take() returns the errors alone.
  Findings findings() {
    const auto notes = std::stable_partition(list_.begin(), list_.end(), [](const Problem& problem) {
      return problem.severity == Severity::Error;
    });
    Findings found;
    found.errors.assign(std::make_move_iterator(list_.begin()), std::make_move_iterator(notes));
    found.notes.assign(std::make_move_iterator(notes), std::make_move_iterator(list_.end()));
    list_.clear();
    return found;
  }
  std::vector<Problem> take() { return findings().errors; }

 private:
  std::vector<Problem> list_;
  std::set<std::string, std::less<>> wrong_;
};

// A command's options with the values of a new configuration.
template <class Config>
const OptionTable& defaults_of() {
  static Config plain;
  static const OptionTable kDefaults = options_of(plain);
  return kDefaults;
}

constexpr auto kEveryRule = [](const Option&, const Rule&) { return true; };

// The mistakes in single options, and the broken rules among those for which `applies` is true; the command adds the
// mistakes that no rule can express. `config` is taken by value because the option table needs a configuration that it
// may modify.
template <class Config>
Problems problems_of_options(Config config, FunctionRef<bool(const Option&, const Rule&)> applies) {
  const OptionTable table = options_of(config);
  Problems problems(table);
  problems.check_rules(table, defaults_of<Config>(), applies);
  return problems;
}
template <class Config>
Problems problems_of_options(Config config) {
  return problems_of_options(std::move(config), kEveryRule);
}

// As above, with the rules checked on `for_rules`: for a run whose layout is still to be chosen.
template <class Config>
Problems problems_of_options(Config config, Config for_rules,
                             FunctionRef<bool(const Option&, const Rule&)> applies) {
  Problems problems(options_of(config));
  problems.check_rules(options_of(for_rules), defaults_of<Config>(), applies);
  return problems;
}

// resolve() for a command without derived values.
template <class Config>
Config without_problems(Config config) {
  throw_problems(problems(config));
  return config;
}

}  // namespace trifold
