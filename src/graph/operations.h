// The operations of a graph: one table, one row each (operations.cpp). A new operation begins with its row.
//
// A row has PyTorch's name and schema, so that the arguments of a file are read, checked and completed by it: an
// argument that equals its default is usually absent from the file. In-place operations have no rows: `add_` is `add`
// whose result replaces its first argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace trifold::graph {

// What an operation is for training.
enum class Gradient : uint8_t {
  Flows,  // its floating-point inputs get gradients from its outputs
  Stops,  // no gradient: comparisons, indices, masks, tensors made from nothing
};

// Whether the result may be the memory of the first argument, which matters only if it is written in place.
enum class Memory : uint8_t {
  New,     // never
  View,    // always
  Either,  // depends on strides, or on other arguments
};

// How the front ends represent it.
enum class Form : uint8_t {
  Node,      // a node of the graph
  Identity,  // its first argument, or a conversion of it to another element type
  Check,     // nothing: it has no result
};

struct Operation {
  std::string_view name;  // ATen's, with the overload unless that is "default": "add.Tensor"
  std::string
      schema;  // the parameters as PyTorch prints them: "Tensor self, Tensor other, *, Scalar alpha=1"
  Gradient gradient = Gradient::Flows;
  Memory memory = Memory::New;
  Form form = Form::Node;
};

// Null if the table has no such operation.
const Operation* find_operation(std::string_view name);
const std::vector<Operation>& operations();

// The kinds of values that a parameter takes. Layout, device and memory format have no meaning in a graph.
enum class ParameterKind : uint8_t { Tensor, Int, Float, Bool, Number, Text, Type, Ignored };

struct Parameter {
  std::string_view name;
  ParameterKind kind = ParameterKind::Tensor;
  bool is_list = false;
  bool optional = false;     // None is allowed
  bool has_default = false;  // `absent` is then its value
  Argument absent;
};

// The parameters of an operation, from its schema. Throws Failure if the schema cannot be parsed; a test parses all.
std::vector<Parameter> parameters_of(const Operation& operation);

}  // namespace trifold::graph
