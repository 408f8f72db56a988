#include "graph/lower/constants.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "graph/host/evaluate.h"

namespace trifold::graph {

Constants::Constants(const Graph& graph, FunctionRef<Array(const Input&)> stored)
    : graph_(graph), stored_(stored) {}

// Nodes are in the order of execution, so one pass from the end finds what the value needs, and one from the beginning
// computes it.
std::optional<Array> Constants::operator()(ValueId value) {
  std::set<int> needed{value.index};
  std::vector<const Node*> nodes;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    const bool reached = std::any_of(node->outputs.begin(), node->outputs.end(),
                                     [&](ValueId id) { return needed.contains(id.index); });
    if (!reached) continue;
    if (node->operation == nullptr || !can_evaluate(*node)) return std::nullopt;
    nodes.push_back(&*node);
    each_read(*node, [&](ValueId id) { needed.insert(id.index); });
  }
  for (const Input& input : graph_.inputs) {
    if (!needed.contains(input.value.index)) continue;
    if (input.kind != InputKind::Constant && input.kind != InputKind::Buffer) return std::nullopt;
    if (!known_.contains(input.value.index)) known_[input.value.index] = stored_(input);
  }
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (known_.contains((*node)->outputs.front().index)) continue;
    std::vector<Array> outputs = evaluate(
        graph_, **node, [&](ValueId id) -> const Array& { return known_.at(id.index); }, 1);
    for (size_t i = 0; i < outputs.size(); ++i)
      if ((*node)->outputs[i].index >= 0) known_[(*node)->outputs[i].index] = std::move(outputs[i]);
  }
  return known_.at(value.index);
}

}  // namespace trifold::graph
