#include "graph/lower/ids_of.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "core/printable.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

const Operand& operand_of(const StepPlan& step, int argument) {
  return step.operands.at(static_cast<size_t>(argument)).front();
}

IdCheck::Part part(const LoweredGraph& lowered, const Operand& operand) {
  return {static_cast<size_t>(lowered.base(operand).index), operand.view};
}

bool is_prepared(const LoweredGraph& lowered, const Operand& operand) {
  return lowered.base(operand).kind == Base::Kind::Prepared;
}

}  // namespace

std::vector<IdCheck> ids_of_steps(const LoweredGraph& lowered) {
  std::map<int, std::string> inputs;  // [value] the name under which its array is given
  for (const Input& input : lowered.graph.inputs) inputs.emplace(input.value.index, input.name);
  std::vector<IdCheck> checks;
  for (const StepPlan& step : lowered.steps) {
    const IdArguments& arguments = step.rule->id_arguments;
    if (arguments.ids < 0 || !is_prepared(lowered, operand_of(step, arguments.ids))) continue;
    const Operand& from = operand_of(step, arguments.from);
    IdCheck check;
    check.ids = part(lowered, operand_of(step, arguments.ids));
    check.count = from.view.dims.at(static_cast<size_t>(arguments.axis));
    if (arguments.weights >= 0) {
      const Operand& weights = operand_of(step, arguments.weights);
      if (!is_prepared(lowered, weights)) continue;
      check.weights = part(lowered, weights);
    }
    const ValueId id = lowered.prepared[check.ids.value];
    const Value& value = lowered.graph.at(id);
    const auto input = inputs.find(id.index);
    check.name = input == inputs.end() ? value.name : input->second;
    check.is_per_sample = !value.dims.empty() && value.dims[0].per_sample;
    check.what = step.rule->is_lookup ? fmt::format("{} looks up rows of '{}'", to_text(step.node),
                                                    printable(lowered.base(from).name))
                                      : fmt::format("{} takes it as a class", to_text(step.node));
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace trifold::graph
