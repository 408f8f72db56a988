#include "config/options/check_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/fields/number.h"

namespace trifold {
namespace {

// "adam|lamb" contains "adam".
bool lists(std::string_view values, std::string_view value) {
  for (size_t begin = 0; begin <= values.size();) {
    const size_t end = std::min(values.find('|', begin), values.size());
    if (folded(values.substr(begin, end - begin)) == folded(value)) return true;
    begin = end + 1;
  }
  return false;
}

std::string with_or(std::string_view values) {
  std::string text;
  for (const char c : values) text += c == '|' ? " or " : std::string(1, c);
  return text;
}

// The number of an option; nullopt if it is unset or no number.
std::optional<double> number_of(const Option& option) {
  return std::visit(
      [](auto field) -> std::optional<double> {
        using T = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t> || std::is_same_v<T, double>)
          return static_cast<double>(*field);
        else if constexpr (std::is_same_v<T, std::optional<int>> ||
                           std::is_same_v<T, std::optional<int64_t>> ||
                           std::is_same_v<T, std::optional<double>>)
          return *field ? std::optional<double>(static_cast<double>(**field)) : std::nullopt;
        else
          return std::nullopt;
      },
      option.field);
}

// The option as given: "--lr 0.1", "--bf16".
std::string as_given(const Option& option) {
  return is_flag(option) ? "--" + option.name : fmt::format("--{} {}", option.name, value_text(option));
}

// The option as it would have to be given: "--save DIR", "--rope-type yarn", "--ranks 2 or more".
std::string as_wanted(const Option& option, const When::Term& term) {
  if (!term.values.empty()) return fmt::format("--{} {}", option.name, with_or(term.values));
  if (term.least == kAboveZero.number) return fmt::format("--{} above 0", option.name);
  if (std::isfinite(term.least))
    return fmt::format("--{} {} or more", option.name, format_double(term.least));
  return is_flag(option) ? "--" + option.name : fmt::format("--{} {}", option.name, option.argument);
}

// Whether the value differs from the one without the option: the default, or the value of the option that
// Option::when_absent names ("--train-iters").
bool is_given(const Option& option, const RuleScope& scope) {
  const auto index = static_cast<size_t>(&option - scope.table.options().data());
  if (same_value(option, scope.defaults.options()[index])) return false;
  if (!option.when_absent.starts_with("--")) return true;
  const Option* source = scope.table.find(option.when_absent.substr(2));
  return source == nullptr || value_text(option) != value_text(*source);
}

bool holds(const Option& option, const When::Term& term, const RuleScope& scope) {
  if (!term.values.empty()) {
    const auto words = value_words(option);
    return words && std::any_of(words->begin(), words->end(),
                                [&](const std::string& word) { return lists(term.values, word); });
  }
  if (std::isfinite(term.least)) return number_of(option).value_or(0) >= term.least;
  return is_given(option, scope);
}

// The result of looking up the terms of a statement in a command's options.
struct Found {
  const Option* true_one = nullptr;  // option of the first term that holds
  bool is_asked = false;             // the statement has a term
  bool known = false;                // the command has one of the options
  bool sound = true;
  std::vector<std::string> names;
  std::string wanted;  // "--ep 2 or more, or --etp 2 or more"
};

Found look_up(const When& when, const RuleScope& scope) {
  Found found;
  for (const When::Term& term : when) {
    found.is_asked = true;
    const Option* option = scope.table.find(term.option);
    if (option == nullptr) continue;
    found.known = true;
    found.sound = found.sound && scope.sound(option->name);
    found.names.push_back(option->name);
    found.wanted += (found.wanted.empty() ? "" : ", or ") + as_wanted(*option, term);
    if (found.true_one == nullptr && found.sound && holds(*option, term, scope)) found.true_one = option;
  }
  return found;
}

struct Disagreement {
  std::string_view fails;  // the verb between the two options
  std::string right;
};

// nullopt if the values satisfy the relation.
std::optional<Disagreement> compared(Relation relation, double value, double other) {
  const std::string text = format_double(other);
  const bool divisible = other != 0 && std::fmod(value, other) == 0;
  switch (relation) {
    case Relation::AtMost:
      if (value <= other) return std::nullopt;
      return Disagreement{"is more than", "give at most " + text};
    case Relation::AtLeast:
      if (value >= other) return std::nullopt;
      return Disagreement{"is less than", "give at least " + text};
    case Relation::Above:
      if (value > other) return std::nullopt;
      return Disagreement{"is not above", "give more than " + text};
    case Relation::Divides:
      if (value != 0 && std::fmod(other, value) == 0) return std::nullopt;
      return Disagreement{"does not divide", "give a divisor of " + text};
    case Relation::MultipleOf:
      if (divisible) return std::nullopt;
      return Disagreement{"is not divisible by",
                          multiples_around(static_cast<int64_t>(value), static_cast<int64_t>(other))};
  }
  return std::nullopt;
}

std::optional<Problem> broken_comparison(const Option& option, const Rule& rule, const RuleScope& scope) {
  const Option* other = scope.table.find(rule.other.begin()->option);
  if (other == nullptr || !scope.sound(other->name)) return std::nullopt;
  const std::optional<double> left = number_of(option), right = number_of(*other);
  if (!left || !right) return std::nullopt;
  const std::optional<Disagreement> wrong = compared(rule.relation, *left, *right);
  if (!wrong) return std::nullopt;
  return Problem{{option.name, other->name},
                 fmt::format("{} {} {}", as_given(option), wrong->fails, as_given(*other)),
                 wrong->right};
}

std::optional<Problem> broken_relation(const Option& option, const Rule& rule, const RuleScope& scope) {
  const Found other = look_up(rule.other, scope);
  const bool wants = rule.kind == Rule::Kind::Needs || rule.kind == Rule::Kind::OnlyWith;
  if (!other.known || !other.sound || wants == (other.true_one != nullptr)) return std::nullopt;
  const std::string seen = wants ? other.wanted : as_given(*other.true_one);
  Problem problem{{option.name}, "", wants ? "give both, or neither" : "leave one of them out"};
  if (wants)
    problem.options.insert(problem.options.end(), other.names.begin(), other.names.end());
  else
    problem.options.push_back(other.true_one->name);
  const std::string_view verb = rule.kind == Rule::Kind::Needs      ? "needs"
                                : rule.kind == Rule::Kind::Excludes ? "is not possible with"
                                : rule.kind == Rule::Kind::OnlyWith ? "has no effect without"
                                                                    : "has no effect with";
  problem.wrong = fmt::format("{} {} {}", as_given(option), verb, seen);
  return problem;
}

std::optional<Problem> broken(const Option& option, const Rule& rule, const RuleScope& scope) {
  const Found provided = look_up(rule.provided, scope);
  if (provided.is_asked && provided.true_one == nullptr) return std::nullopt;
  if (look_up(rule.unless, scope).true_one != nullptr) return std::nullopt;
  std::optional<Problem> problem = rule.kind == Rule::Kind::Compares ? broken_comparison(option, rule, scope)
                                                                     : broken_relation(option, rule, scope);
  if (!problem) return problem;
  if (provided.true_one != nullptr && rule.kind != Rule::Kind::Compares) {
    problem->wrong += fmt::format(" with {}", as_given(*provided.true_one));
    problem->options.push_back(provided.true_one->name);
  }
  if (!rule.because.empty()) problem->wrong += fmt::format(", {}", rule.because);
  if (!rule.remedy.empty()) problem->right = rule.remedy;
  problem->severity = rule.severity;
  if (rule.severity == Severity::Note) problem->right.clear();
  return problem;
}

bool is_active(const Option& option, const Rule& rule, bool given) {
  if (rule.kind == Rule::Kind::Compares) return true;
  return rule.values.empty() ? given : lists(rule.values, value_text(option));
}

}  // namespace

bool is_about(const Rule& rule, FunctionRef<bool(std::string_view option)> named) {
  for (const When* when : {&rule.other, &rule.provided, &rule.unless})
    if (std::any_of(when->begin(), when->end(), [&](const When::Term& term) { return named(term.option); }))
      return true;
  return false;
}

std::vector<Problem> broken_rules(const Option& option, const RuleScope& scope, bool given) {
  std::vector<Problem> problems;
  if (option.rules.empty() || !scope.sound(option.name)) return problems;
  given = given || is_given(option, scope);
  for (const Rule& rule : option.rules) {
    if (!scope.applies(option, rule) || !is_active(option, rule, given)) continue;
    std::optional<Problem> problem = broken(option, rule, scope);
    if (!problem) continue;
    problems.push_back(std::move(*problem));
    if (rule.kind == Rule::Kind::OnlyWith || rule.kind == Rule::Kind::NoEffectWith) break;
  }
  return problems;
}

}  // namespace trifold
