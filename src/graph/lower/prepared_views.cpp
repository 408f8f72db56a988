#include "graph/lower/prepared_views.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/operations.h"

namespace trifold::graph {

const Node* PreparedViews::maker(ValueId value) {
  if (made_by_.empty())
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const ValueId id : graph_.nodes[i].outputs) made_by_[id.index] = i;
  const auto at = made_by_.find(value.index);
  return at == made_by_.end() ? nullptr : &graph_.nodes[at->second];
}

// What the value would be a view of: the first argument of a node that makes views.
std::optional<ValueId> PreparedViews::viewed(ValueId value) {
  const Node* const node = maker(value);
  if (node == nullptr || node->operation == nullptr || node->operation->memory == Memory::New ||
      node->operation->form != Form::Node)
    return std::nullopt;
  const auto* const first = std::get_if<ValueId>(&node->arguments.front());
  if (first == nullptr || first->index < 0) return std::nullopt;
  if (!view_of(graph_, *node, 0, dense_view(graph_.at(*first).dims))) return std::nullopt;
  return *first;
}

// A file may have a long chain, so this is a loop and no recursion.
const PreparedView& PreparedViews::of(ValueId value) {
  std::vector<ValueId> chain{value};  // back to the first, or to a value that is known
  while (!known_.contains(chain.back().index)) {
    const std::optional<ValueId> before = viewed(chain.back());
    if (!before) break;
    chain.push_back(*before);
  }
  const PreparedView* before = nullptr;
  for (auto next = chain.rbegin(); next != chain.rend(); ++next) {
    if (const auto known = known_.find(next->index); known != known_.end()) {
      before = &known->second;
      continue;
    }
    std::optional<View> view;
    if (before != nullptr) {
      const Node& node = *maker(*next);
      const auto output = std::find(node.outputs.begin(), node.outputs.end(), *next) - node.outputs.begin();
      view = view_of(graph_, node, static_cast<size_t>(output), before->view);
    }
    PreparedView own = view ? PreparedView{before->value, std::move(*view)}
                            : PreparedView{*next, dense_view(graph_.at(*next).dims)};
    before = &known_.emplace(next->index, std::move(own)).first->second;
  }
  return *before;
}

}  // namespace trifold::graph
