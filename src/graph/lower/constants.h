// Values of a graph that depend on no array of the batch and no parameter, computed when a graph is lowered.
#pragma once

#include <map>
#include <optional>

#include "core/function_ref.h"
#include "graph/graph.h"
#include "graph/host/array.h"

namespace trifold::graph {

class Constants {
 public:
  // `stored` gives the elements of a buffer or constant; both must outlive this object.
  Constants(const Graph& graph, FunctionRef<Array(const Input&)> stored);
  // The value for one sample; none if it depends on arrays or parameters, or cannot be evaluated.
  std::optional<Array> operator()(ValueId value);

 private:
  const Graph& graph_;
  FunctionRef<Array(const Input&)> stored_;
  std::map<int, Array> known_;  // by value
};

}  // namespace trifold::graph
