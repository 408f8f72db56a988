// Rules: how nodes become steps. One table: a new operation is a row of graph/operations.cpp, a Step and a row here.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/steps/step.h"

namespace trifold::graph {

// What a rule reads to make a step. Arguments are counted as in the operation's schema.
struct StepParts {
  const Graph& graph;
  const Node& node;
  const std::vector<std::vector<Operand>>& operands;  // as in StepPlan, with the bases of the block
  std::span<const BlockBase> bases;
  BlockBuilder& builder;

  // The tensor given for an argument; it does not exist if it is absent or an attribute.
  Operand operand(size_t argument) const;
  bool needs_gradient(const Operand& operand) const;
  bool is_parameter(const Operand& operand) const;
  int64_t integer(size_t argument) const;
  // Attributes that are numbers of any kind.
  bool is_number(size_t argument) const;
  double number(size_t argument, double absent = 0) const;
  bool flag(size_t argument) const;
  std::string text(size_t argument) const;
  std::vector<int64_t> integers(size_t argument) const;
  // The memory of the result.
  View result() const { return dense_view(graph.at(node.outputs.front()).dims); }
  // The key of the node's random numbers.
  PhiloxKey key() const;
};

// Arguments with ids, and what limits them: an axis of another argument. Ids of weight 0, if there is an argument with
// weights, are not used.
struct IdArguments {
  int ids = -1, from = -1, axis = 0, weights = -1;
};

struct Rule {
  using Make = std::unique_ptr<Step> (*)(const StepParts& parts);

  std::string_view name;  // the operation's
  Make make = nullptr;
  // Arguments, as bits by index: whole numbers, such as ids; and tensors that are a whole parameter if they are trained.
  unsigned integers = 0, weights = 0;
  // Whether the result has the accumulate_type: if an operand has it, or always.
  bool is_sum = false;
  // The order of the result's axes in memory, slowest first, if it is not that of the value.
  std::vector<size_t> (*memory_order)(size_t rank) = nullptr;
  // Why this node cannot be trained, as a clause for a message; empty if it can. Null: every node can.
  std::string (*limit)(const Graph& graph, const Node& node) = nullptr;
  // Whether the first argument is a table, of which the result has rows.
  bool is_lookup = false;
  IdArguments id_arguments = {};
};

// All rules, by name.
const std::vector<Rule>& rules();
// Null if nodes of this name cannot be trained.
const Rule* find_rule(std::string_view name);

// Each adds the rules of one file.
void add_attention_rules(std::vector<Rule>& rules);
void add_elementwise_rules(std::vector<Rule>& rules);
void add_loss_rules(std::vector<Rule>& rules);
void add_movement_rules(std::vector<Rule>& rules);
void add_product_rules(std::vector<Rule>& rules);
void add_row_rules(std::vector<Rule>& rules);

}  // namespace trifold::graph
