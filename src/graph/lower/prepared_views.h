// Prepared values (graph/preparation.h) as views of other prepared values, so that the host need not copy them.
#pragma once

#include <map>
#include <optional>

#include "graph/graph.h"
#include "graph/lower/view.h"

namespace trifold::graph {

// Elements of `value`.
struct PreparedView {
  ValueId value;
  View view;
};

class PreparedViews {
 public:
  // `graph` must outlive this object. Nodes may be added, but not nodes that make a view.
  explicit PreparedViews(const Graph& graph) : graph_(graph) {}
  // Of the first value in the chain of views that ends with `value`. A value that cannot be a view of what comes before
  // it, such as a reshape that merges transposed axes, is the first of the rest of the chain.
  const PreparedView& of(ValueId value);

 private:
  std::optional<ValueId> viewed(ValueId value);
  const Node* maker(ValueId value);

  const Graph& graph_;
  std::map<int, size_t> made_by_;      // [value] the node that computes it
  std::map<int, PreparedView> known_;  // [value]
};

}  // namespace trifold::graph
