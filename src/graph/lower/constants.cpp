#include "graph/lower/constants.h"

#include <set>
#include <utility>
#include <vector>

#include "graph/host/evaluate.h"

namespace trifold::graph {

Constants::Constants(const Graph& graph, FunctionRef<Array(const Input&)> stored)
    : graph_(graph), stored_(stored), makers_(graph.values.size()), evaluated_(graph.nodes.size()) {
  const auto maker = [&](ValueId id) -> Maker& { return makers_[static_cast<size_t>(id.index)]; };
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const InputKind kind = graph.inputs[i].kind;
    maker(graph.inputs[i].value) = {kind == InputKind::Constant || kind == InputKind::Buffer, -1,
                                    static_cast<int>(i)};
  }
  // Nodes are in the order of execution, so what a node reads is known before the node.
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    bool constant = node.operation != nullptr && can_evaluate(node);
    each_read(node, [&](ValueId id) { constant = constant && maker(id).is_constant; });
    for (const ValueId id : node.outputs)
      if (id.index >= 0) maker(id) = {constant, static_cast<int>(i), -1};
  }
}

// Walks from the value to what is not known yet, and computes that in the order of execution. A node is evaluated once.
std::optional<Array> Constants::operator()(ValueId value) {
  const auto index = static_cast<size_t>(value.index);
  if (index >= makers_.size() || !makers_[index].is_constant) return std::nullopt;
  std::set<int> nodes;
  std::vector<ValueId> open{value};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    const Maker& maker = makers_[static_cast<size_t>(id.index)];
    if (known_.contains(id.index)) continue;
    if (maker.input >= 0) {
      known_[id.index] = stored_(graph_.inputs[static_cast<size_t>(maker.input)]);
    } else if (!evaluated_[static_cast<size_t>(maker.node)] && nodes.insert(maker.node).second) {
      each_read(graph_.nodes[static_cast<size_t>(maker.node)], [&](ValueId read) { open.push_back(read); });
    }
  }
  for (const int each : nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(each)];
    std::vector<Array> outputs = evaluate(
        graph_, node, [&](ValueId id) -> const Array& { return known_.at(id.index); }, 1);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (node.outputs[i].index >= 0) known_[node.outputs[i].index] = std::move(outputs[i]);
    evaluated_[static_cast<size_t>(each)] = true;
  }
  return known_.at(value.index);
}

}  // namespace trifold::graph
