// Call: one node that is evaluated, as the functions of its operation see it. Arguments are in the order of the schema
// (graph/operations.h). A wrong kind of argument is a BadInput.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "graph/graph.h"
#include "graph/host/strided.h"

namespace trifold::graph {

// A tensor of a node, or a number in its place; numbers count less when types are combined.
class HostOperand {
 public:
  explicit HostOperand(const Array* given) : given_(given) {}
  HostOperand(Array own, bool number) : own_(std::move(own)), number_(number) {}

  const Array& array() const { return given_ != nullptr ? *given_ : own_; }
  bool number() const { return number_; }
  // Converted to a type. The array is copied only if it has another one.
  HostOperand as(ElementType type) const&;
  HostOperand as(ElementType type) &&;

 private:
  const Array* given_ = nullptr;
  Array own_;
  bool number_ = false;
};

// The type that PyTorch combines operands in: the highest kind (bool, integer, float) decides; of that kind arrays with
// dims count before those without, and these before numbers.
ElementType combined_type(const HostOperand& a, const HostOperand& b);

class Call {
 public:
  using Lookup = FunctionRef<const Array&(ValueId)>;

  Call(const Graph& graph, const Node& node, Lookup lookup, int64_t batch)
      : graph_(graph), node_(node), lookup_(lookup), batch_(batch) {}

  // Whether argument i is given: not None, nor an absent tensor.
  bool has(size_t i) const;
  const Array& tensor(size_t i) const;
  // Null for absent ones.
  std::vector<const Array*> tensors(size_t i) const;
  // A tensor or a number.
  HostOperand operand(size_t i) const;
  // A number as an array without dims of type f64, i64 or bool.
  Array number(size_t i) const;
  double real(size_t i) const;
  int64_t integer(size_t i) const;
  Dims integers(size_t i) const;
  bool flag(size_t i) const;
  const std::string& text(size_t i) const;
  size_t arguments() const { return node_.arguments.size(); }

  // Output `output` as the graph has it, for the samples of this call. Failure if it is absent.
  size_t outputs() const { return node_.outputs.size(); }
  ElementType type(size_t output = 0) const { return value(output).type; }
  Dims dims(size_t output = 0) const;

 private:
  const Argument& argument(size_t i) const;
  const Value& value(size_t output) const;
  int64_t value_of(const Extent& extent) const;

  const Graph& graph_;
  const Node& node_;
  Lookup lookup_;
  int64_t batch_;
};

}  // namespace trifold::graph
