#include "graph/reach.h"

#include "graph/operations.h"

namespace trifold::graph {

namespace {

bool passes(const Node& node) {
  return node.operation == nullptr || node.operation->gradient == Gradient::Flows;
}

}  // namespace

std::vector<bool> trained_inputs(const Graph& graph, size_t output) {
  // Values whose gradient is needed for that of the output, from the last node to the first.
  std::vector<bool> reached(graph.values.size());
  const auto reach = [&](ValueId id) {
    reached[static_cast<size_t>(id.index)] = is_float(graph.at(id).type);
  };
  if (output < graph.outputs.size()) reach(graph.outputs[output].value);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool any = false;
    for (const ValueId id : node->outputs)
      any = any || (id.index >= 0 && reached[static_cast<size_t>(id.index)]);
    if (any && passes(*node)) each_read(*node, reach);
  }
  // An exporter may read all uses of a tied parameter through one of its names.
  const auto owner = [&](size_t i) {
    return graph.inputs[i].tied_to < 0 ? i : static_cast<size_t>(graph.inputs[i].tied_to);
  };
  std::vector<bool> owners(graph.inputs.size()), trained(graph.inputs.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (reached[static_cast<size_t>(graph.inputs[i].value.index)]) owners[owner(i)] = true;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    trained[i] = graph.inputs[i].requires_grad && owners[owner(i)];
  return trained;
}

}  // namespace trifold::graph
