// LoweredGraph: a graph in the form that blocks are made of. Values that depend on a parameter are computed by *steps*,
// one or more for each node; views of them are operands' strides and no steps. All other values are prepared: the host
// computes them from the arrays of a micro-batch (graph/array_layout.h).
//
// A *base* is a tensor with memory: a parameter, a prepared array, or the result of a step. An operand is a view of one.
// Steps are in the order of execution, and cut into blocks: consecutive steps of one group of modules. The bases that
// cross from one block to the next are its boundary.
#pragma once

#include <string>
#include <vector>

#include "graph/array_layout.h"
#include "graph/graph.h"
#include "graph/id_check.h"
#include "graph/lower/rewrite.h"
#include "graph/lower/view.h"

namespace trifold::graph {

struct Rule;

struct Base {
  enum class Kind : uint8_t { Parameter, Prepared, Computed };
  Kind kind = Kind::Computed;
  // A parameter: its index in Graph::inputs, of the owner if it is tied. Prepared: its index in LoweredGraph::prepared.
  int index = -1;
  std::vector<Size> dims;  // in the order of memory
  // A floating-point result that is a sum of many values, such as a loss: it has the accumulate_type.
  bool is_sum = false;
  // Whether the loss has a gradient with respect to it.
  bool needs_gradient = false;
  std::string name;  // the parameter's or the node's

  Size elements() const;
};

struct Operand {
  int base = -1;  // -1: absent
  View view;

  bool exists() const { return base >= 0; }
};

struct StepPlan {
  const Rule* rule = nullptr;
  Node node;
  // By argument of the node: its tensors; one for a single tensor, none for absent ones and attributes.
  std::vector<std::vector<Operand>> operands;
  int output = -1;      // the base that it computes
  bool joined = false;  // belongs to the block of the step before it
};

// Steps [begin, end), and the bases that later blocks read from it or from earlier blocks.
struct BlockPlan {
  std::string group;  // the path of its modules: "model.h.0"
  int begin = 0, end = 0;
  std::vector<int> leaving;
};

struct LoweredGraph {
  Graph graph;
  std::vector<Base> bases;
  std::vector<StepPlan> steps;
  std::vector<BlockPlan> blocks;
  std::vector<ValueId> prepared;   // values of `graph` that the host prepares
  std::vector<IdCheck> id_checks;  // the values that blocks use as ids and labels
  // Where a batch has them, in runs whose sums are f32 and f64.
  ArrayLayout arrays_f32, arrays_f64;
  Operand loss;  // one element
  // The number of elements that the loss is a sum over; absent if the loss is a mean over the micro-batch.
  Operand count;

  const ArrayLayout& arrays(DType sums) const { return sums == DType::F64 ? arrays_f64 : arrays_f32; }
  const Base& base(const Operand& operand) const { return bases[static_cast<size_t>(operand.base)]; }
};

// Lowers a graph whose first output is the loss of a micro-batch: a sum, if the second output is the number of elements
// that it is over, or else a mean. `problems` gets a line for each reason why it cannot be trained: for nodes, all of
// them, with module and line; and for the loss. If it gets one, the result is incomplete and only `prepared` may be read.
// `constant` as in graph/lower/rewrite.h.
LoweredGraph lower(Graph graph, ConstantOf constant, std::vector<std::string>& problems);
// Lowers a graph as above; BadInput with refusal_text if there are problems.
LoweredGraph lower(Graph graph, ConstantOf constant);

// "the model cannot be trained, for 2 reasons:" and a line for each.
std::string refusal_text(const std::vector<std::string>& problems);

}  // namespace trifold::graph
