// Reads the arguments of a file's nodes: one-key objects such as {"as_sym_ints": [{"as_name": "s"}, {"as_int": 8}]}.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/read_json.h"
#include "graph/graph.h"
#include "graph/operations.h"
#include "graph/pt2/extent.h"

namespace trifold::graph {

// What names in arguments stand for.
struct ArgumentNames {
  std::function<ValueId(const std::string&)> tensor;  // BadInput for a name that is not defined
  const JsonView* symbolic_integers = nullptr;        // the graph's sym_int_values
  BatchSymbols batch;
};

// The kind of an argument, its only key, and the value under it. BadInput if it is no object with one key.
struct UnionValue {
  std::string kind;
  JsonView value;
};
UnionValue union_value(const JsonView& view);

// A size of a tensor, {"as_int": 8} or {"as_expr": {"expr_str": ...}}. BadInput if it is negative, or neither constant
// nor a multiple of the batch; `what` begins the message.
Extent read_size(const JsonView& view, const BatchSymbols& batch, const std::string& what);

// An integer, {"as_int": 8} or {"as_sym_int": {"as_name": "s"}}; none for an argument of another kind. BadInput if it is
// computed from data.
std::optional<Extent> read_integer(const JsonView& argument, const ArgumentNames& names);

// The arguments of a node, in the order of the operation's parameters, with defaults for absent ones.
// BadInput if one is missing, unknown, given twice, of another kind than the parameter, or computed from data.
std::vector<Argument> read_arguments(const JsonView& inputs, const std::vector<Parameter>& parameters,
                                     const ArgumentNames& names);

// For an operation that is not in the table: the tensors that it reads. Other arguments become None.
std::vector<Argument> read_tensors(const JsonView& inputs, const ArgumentNames& names);

}  // namespace trifold::graph
