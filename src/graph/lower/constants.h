// Values of a graph that depend on no array of the batch and no parameter, computed when a graph is lowered.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/function_ref.h"
#include "graph/graph.h"
#include "graph/host/array.h"

namespace trifold::graph {

class Constants {
 public:
  // `stored` gives the elements of a buffer or constant; both must outlive this object.
  Constants(const Graph& graph, FunctionRef<Array(const Input&)> stored);
  // The value for one sample; none if it depends on arrays or parameters, cannot be evaluated, or is not in the graph.
  std::optional<Array> operator()(ValueId value);

 private:
  // What computes a value: a node or an input, by index; and whether it depends on constants only.
  struct Maker {
    bool is_constant = false;
    int node = -1, input = -1;
  };

  const Graph& graph_;
  FunctionRef<Array(const Input&)> stored_;
  std::vector<Maker> makers_;    // by value
  std::vector<bool> evaluated_;  // by node
  std::map<int, Array> known_;   // by value
};

}  // namespace trifold::graph
