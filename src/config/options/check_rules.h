// The evaluation of rules (rule.h), and their messages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options/option.h"
#include "config/options/problem.h"
#include "core/function_ref.h"

namespace trifold {

// The options of a command with their values, for the evaluation of rules.
struct RuleScope {
  const OptionTable& table;
  const OptionTable& defaults;  // the same options with their default values
  // Whether an option's value is valid by itself; rules about other values are skipped.
  FunctionRef<bool(std::string_view option)> sound;
  FunctionRef<bool(const Option&, const Rule&)> applies;  // other rules are left out
};

// Whether the rule is about an option with one of these names, besides its own.
bool is_about(const Rule& rule, FunctionRef<bool(std::string_view option)> named);

// A problem for each broken rule of the option, up to the first by which it has no effect. `given`: the option is taken
// as given even if it has its default value.
std::vector<Problem> broken_rules(const Option& option, const RuleScope& scope, bool given = false);

}  // namespace trifold
