// Graph: a model as a list of operations on values, whatever file it was read from.
//
// Rules, which a front end (graph/pt2) establishes:
//   - Values never change. An operation that a file does in place becomes one that makes a new value, and writing
//     through a view becomes an operation that puts the part into the whole (slice_scatter).
//   - Every shape is known but for the batch: an extent is a constant, or a multiple of the samples of a micro-batch.
//   - Nodes are in an order of execution: they read inputs of the graph and outputs of earlier nodes.
//   - A node has all arguments of its operation (graph/operations.h), in the order of its schema, defaults included.
//   - Operations without an effect on values (aliases, copies, checks of shapes) are not in the graph.
//
// A Graph holds no weights, and nothing of the file; it is a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dtype.h"

namespace trifold::graph {

// The types of elements that values of a graph may have. The engine computes with types that have a DType; the others
// occur in masks and in arithmetic on indices.
enum class ElementType : uint8_t { F64, F32, BF16, F16, I64, I32, I16, I8, U16, U8, Bool };

std::string_view name_of(ElementType type);
int64_t size_of(ElementType type);
bool is_float(ElementType type);
std::optional<DType> dtype_of(ElementType type);

// A whole number that may depend on the batch: `value`, or `value` times the number of samples.
struct Extent {
  int64_t value = 0;
  bool per_sample = false;

  bool operator==(const Extent&) const = default;
};

// "8", "batch", "8*batch".
std::string to_text(const Extent& extent);
std::string to_text(const std::vector<Extent>& extents);  // "[batch, 8]"

// Whether the first dim counts samples and no other depends on their number.
bool counts_samples(const std::vector<Extent>& dims);

// Index in Graph::values; -1 stands for an optional tensor that is absent.
struct ValueId {
  int index = -1;

  bool operator==(const ValueId&) const = default;
};

struct Value {
  std::string
      name;  // as in the file; a tensor that is written in place has a value of this name for each write
  ElementType type = ElementType::F32;
  std::vector<Extent> dims;
};

// An argument of a node: a tensor, a list of them, or an attribute. monostate is Python's None.
using Argument = std::variant<std::monostate, ValueId, std::vector<ValueId>, bool, Extent,
                              std::vector<Extent>, double, std::vector<double>, std::string, ElementType>;

// Where a node comes from, for messages and for grouping.
struct Origin {
  std::string node;    // its name in the file
  std::string module;  // path of the innermost module, "model.transformer.h.0.attn"; empty for the outermost
  std::string type;    // the module's class, without its package: "GPT2Attention"
  std::string
      line;  // "model.py:113: hidden = torch.relu(self.first(features))"; empty if the file does not say
};

struct Operation;  // graph/operations.h

struct Node {
  const Operation* operation = nullptr;  // null: not in the table
  std::string name;                      // "linear"; of an operation that is not in the table, its whole name
  std::vector<Argument> arguments;  // in the order of the schema; if not in the table, in that of the file
  std::vector<ValueId> outputs;     // index -1: an output that is None
  Origin origin;
};

enum class InputKind : uint8_t {
  Parameter,  // trained, unless requires_grad is false
  Buffer,     // state that is not trained: running statistics, tables
  Constant,   // a tensor that the code made
  Data,       // given with every micro-batch
};

struct Input {
  ValueId value;
  InputKind kind = InputKind::Data;
  std::string
      name;  // parameters and buffers: the name in the state dictionary; data: the name of the argument
  bool requires_grad = false;
  // Index in Graph::inputs of the first input that has the same memory: a tied parameter. -1: none.
  int tied_to = -1;
};

struct Output {
  ValueId value;
  std::string updates;  // the buffer that gets this value; empty for an output of the model
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  // The samples of a micro-batch, if extents depend on it; otherwise the file has a fixed size.
  bool has_batch = false;
  int64_t least_batch = 1;
  std::optional<int64_t> most_batch;

  const Value& at(ValueId id) const { return values[static_cast<size_t>(id.index)]; }
  ValueId add(Value value);
  // Elements of a value for `batch` samples. Shapes of a graph never overflow with one sample; with more they may,
  // which throws BadInput.
  int64_t elements(ValueId id, int64_t batch) const;
};

// Calls body(ValueId) for each tensor that the node reads, in the order of its arguments. Absent ones are left out.
template <class Body>
void each_read(const Node& node, Body&& body) {
  for (const Argument& argument : node.arguments) {
    if (const auto* one = std::get_if<ValueId>(&argument); one != nullptr && one->index >= 0) body(*one);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&argument))
      for (const ValueId id : *list)
        if (id.index >= 0) body(id);
  }
}

// "node 'linear_3' (linear) of model.h.0.mlp, model.py:113: x = self.fc(x)", for messages.
std::string to_text(const Node& node);

}  // namespace trifold::graph
