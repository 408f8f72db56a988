// Evaluates rules (rule.h) and writes their messages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options/option.h"
#include "config/options/problem.h"
#include "core/function_ref.h"

namespace trifold {

// The values of a command's options, on which rules are evaluated.
struct RuleScope {
  const OptionTable& table;
  const OptionTable& defaults;  // the same options with their default values
  // Whether an option's value, taken alone, is valid; rules about invalid values are skipped.
  FunctionRef<bool(std::string_view option)> sound;
  FunctionRef<bool(const Option&, const Rule&)> applies;  // false: the rule is left out
};

// Whether the rule concerns an option, besides its own, whose name satisfies `named`.
bool is_about(const Rule& rule, FunctionRef<bool(std::string_view option)> named);

// A problem for each broken rule of the option, up to the first rule by which the option has no effect. `given`: treat
// the option as given even if it has its default value.
std::vector<Problem> broken_rules(const Option& option, const RuleScope& scope, bool given = false);

}  // namespace trifold
