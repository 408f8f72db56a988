#include "graph/steps/rules.h"

#include <algorithm>

#include "core/error.h"

namespace trifold::graph {

Operand StepParts::operand(size_t argument) const {
  const std::vector<Operand>& given = operands.at(argument);
  return given.empty() ? Operand{} : given.front();
}

bool StepParts::needs_gradient(const Operand& operand) const {
  return operand.exists() && bases[static_cast<size_t>(operand.base)].needs_gradient;
}

bool StepParts::is_parameter(const Operand& operand) const {
  return operand.exists() && bases[static_cast<size_t>(operand.base)].base->kind == Base::Kind::Parameter;
}

int64_t StepParts::integer(size_t argument) const {
  return std::get<Extent>(node.arguments.at(argument)).value;
}

bool StepParts::is_number(size_t argument) const {
  const Argument& given = node.arguments.at(argument);
  return std::holds_alternative<double>(given) || std::holds_alternative<Extent>(given) ||
         std::holds_alternative<bool>(given);
}

double StepParts::number(size_t argument, double absent) const {
  const Argument& given = node.arguments.at(argument);
  if (const auto* real = std::get_if<double>(&given)) return *real;
  if (const auto* whole = std::get_if<Extent>(&given)) {
    if (whole->per_sample)
      bad_input(
          "{}: its argument {} depends on the number of samples, as only the numbers in sums, differences, "
          "products and quotients may",
          to_text(node), argument + 1);
    return static_cast<double>(whole->value);
  }
  if (const auto* truth = std::get_if<bool>(&given)) return *truth ? 1 : 0;
  return absent;
}

bool StepParts::flag(size_t argument) const { return std::get<bool>(node.arguments.at(argument)); }

std::string StepParts::text(size_t argument) const {
  return std::get<std::string>(node.arguments.at(argument));
}

std::vector<int64_t> StepParts::integers(size_t argument) const {
  std::vector<int64_t> numbers;
  if (const auto* list = std::get_if<std::vector<Extent>>(&node.arguments.at(argument)))
    for (const Extent& extent : *list) numbers.push_back(extent.value);
  return numbers;
}

PhiloxKey StepParts::key() const {
  return philox_key(builder.seed(), "graph." + graph.at(node.outputs.front()).name);
}

namespace {

std::vector<Rule> sorted_rules() {
  std::vector<Rule> all;
  for (auto* const add : {add_attention_rules, add_elementwise_rules, add_loss_rules, add_movement_rules,
                          add_product_rules, add_row_rules})
    add(all);
  std::sort(all.begin(), all.end(), [](const Rule& a, const Rule& b) { return a.name < b.name; });
  return all;
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kAll = sorted_rules();
  return kAll;
}

const Rule* find_rule(std::string_view name) {
  const std::vector<Rule>& all = rules();
  const auto at =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const Rule& rule, std::string_view wanted) { return rule.name < wanted; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

}  // namespace trifold::graph
