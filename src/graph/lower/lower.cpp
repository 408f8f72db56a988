#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/tensor.h"
#include "graph/lower/cut.h"
#include "graph/lower/decompose.h"
#include "graph/lower/ids_of.h"
#include "graph/lower/lowered.h"
#include "graph/lower/prepared_views.h"
#include "graph/operations.h"
#include "graph/preparation.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

// For each value whether blocks compute it.
std::vector<bool> trained_values(const Graph& graph) {
  std::vector<bool> trained;
  for (const Dependence kind : partition(graph)) trained.push_back(kind == Dependence::Trained);
  return trained;
}

// The nodes that the value depends on.
std::vector<bool> needed_nodes(const Graph& graph, ValueId value) {
  std::vector<bool> values(graph.values.size()), nodes(graph.nodes.size());
  values[static_cast<size_t>(value.index)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    for (const ValueId id : node.outputs)
      nodes[i] = nodes[i] || (id.index >= 0 && values[static_cast<size_t>(id.index)]);
    if (nodes[i]) each_read(node, [&](ValueId id) { values[static_cast<size_t>(id.index)] = true; });
  }
  return nodes;
}

// The outputs that forward returns, without updated buffers.
std::vector<ValueId> results_of(const Graph& graph) {
  std::vector<ValueId> results;
  for (const Output& output : graph.outputs)
    if (output.updates.empty()) results.push_back(output.value);
  return results;
}

bool has_one_element(const Value& value) {
  return std::all_of(value.dims.begin(), value.dims.end(),
                     [](const Extent& dim) { return dim == Extent{1}; });
}

class Lowering {
 public:
  Lowering(Graph graph, ConstantOf constant, std::vector<std::string>& problems) : problems_(problems) {
    const std::vector<bool> given = trained_values(graph);
    refuse_numbers(graph, given);
    graph = decomposed(std::move(graph), given);
    const std::vector<bool> before = trained_values(graph);
    lowered_.graph = rewritten(std::move(graph), before, constant);
    trained_ = trained_values(lowered_.graph);
    operands_.resize(lowered_.graph.values.size());
  }

  // Incomplete if there are problems.
  LoweredGraph run() {
    Graph& graph = lowered_.graph;
    const std::vector<ValueId> results = results_of(graph);
    check_loss(results);
    add_parameters();
    const std::vector<bool> needed =
        results.empty() ? std::vector<bool>(graph.nodes.size(), true) : needed_nodes(graph, results[0]);
    const size_t count = graph.nodes.size();  // lowering adds nodes that convert prepared values
    for (size_t i = 0; i < count; ++i) {
      const Node node = graph.nodes[i];
      if (needed[i] && is_trained(node)) add(node);
    }
    if (results.size() > 1) add_count(results[1]);
    if (problems_.empty()) add_loss(results[0]);
    if (!problems_.empty()) return std::move(lowered_);
    lowered_.id_checks = ids_of_steps(lowered_);
    lowered_.arrays_f32 = ArrayLayout(graph, lowered_.prepared, DType::F32);
    lowered_.arrays_f64 = ArrayLayout(graph, lowered_.prepared, DType::F64);
    cut_into_blocks(lowered_);
    return std::move(lowered_);
  }

 private:
  // Numbers may be given for tensors, but few operations on trained values expect one. Nodes that do not are taken for
  // unknown ones without a name, which no rule matches.
  void refuse_numbers(Graph& graph, const std::vector<bool>& trained) {
    constexpr std::string_view kTakeNumbers[] = {"add.Tensor", "sub.Tensor", "rsub.Tensor",
                                                 "mul.Tensor", "div.Tensor", "masked_fill.Tensor"};
    std::map<const Operation*, std::vector<Parameter>> known;
    for (Node& node : graph.nodes) {
      const bool is_computed = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
        return id.index >= 0 && trained[static_cast<size_t>(id.index)];
      });
      if (!is_computed || node.operation == nullptr) continue;
      const bool takes =
          std::find(std::begin(kTakeNumbers), std::end(kTakeNumbers), node.name) != std::end(kTakeNumbers);
      std::vector<Parameter>& parameters = known[node.operation];
      if (parameters.empty()) parameters = parameters_of(*node.operation);
      const size_t before = problems_.size();
      for (size_t i = 0; i < parameters.size() && i < node.arguments.size(); ++i) {
        if (parameters[i].kind != ParameterKind::Tensor || parameters[i].is_list) continue;
        const auto* const id = std::get_if<ValueId>(&node.arguments[i]);
        const bool is_absent =
            parameters[i].optional && std::holds_alternative<std::monostate>(node.arguments[i]);
        if (is_absent || (id != nullptr && id->index >= 0)) continue;
        if (id == nullptr && takes && i > 0) continue;
        problem(node, fmt::format("its argument '{}' is no tensor", parameters[i].name));
      }
      if (problems_.size() == before) continue;
      node.operation = nullptr;
      node.name.clear();
    }
  }

  bool is_trained(ValueId id) const {
    const auto index = static_cast<size_t>(id.index);
    return index < trained_.size() && trained_[index];
  }
  bool is_trained(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id.index >= 0 && is_trained(id); });
  }

  void check_loss(const std::vector<ValueId>& results) {
    if (results.empty()) return problem("the model has no output: its first output has to be the loss");
    const Value& value = lowered_.graph.at(results[0]);
    if (is_float(value.type) && has_one_element(value)) return;
    problem(fmt::format(
        "the model's first output, '{}', is {} {}: it has to be the loss, one floating-point number",
        printable(value.name), name_of(value.type), to_text(value.dims)));
  }

  void add_loss(ValueId loss) {
    lowered_.loss = operand(loss);
    // Backward begins with the gradient of a whole base, so a part of a tensor and a parameter are copied.
    const Base& base = lowered_.base(lowered_.loss);
    if (base.kind != Base::Kind::Computed || base.elements() != Size{1, 0}) {
      Node node;
      node.origin.node = "loss";
      lowered_.loss = copy_of(node, loss);
    }
    keep_reached_gradients();
    if (lowered_.base(lowered_.loss).needs_gradient) return;
    problem(fmt::format(
        "the model's first output, '{}', has to be its loss, but no trained parameter has an effect on it",
        printable(lowered_.graph.at(loss).name)));
  }

  void add_count(ValueId count) {
    const Value& value = lowered_.graph.at(count);
    if (has_one_element(value) && !is_trained(count)) {
      lowered_.count = prepared(count, Use::Number);
      return;
    }
    problem(fmt::format(
        "the model's second output, '{}', is {} {}: it has to be the number of elements that the loss is a "
        "sum over, which does not depend on parameters",
        printable(value.name), name_of(value.type), to_text(value.dims)));
  }

  // Leaves a gradient only to bases from which one flows to the loss.
  void keep_reached_gradients() {
    std::vector<bool> reached(lowered_.bases.size());
    reached[static_cast<size_t>(lowered_.loss.base)] = true;
    for (auto step = lowered_.steps.rbegin(); step != lowered_.steps.rend(); ++step) {
      const auto output = static_cast<size_t>(step->output);
      if (!reached[output] || !lowered_.bases[output].needs_gradient) continue;
      for (const std::vector<Operand>& of_argument : step->operands)
        for (const Operand& operand : of_argument) reached[static_cast<size_t>(operand.base)] = true;
    }
    for (size_t base = 0; base < reached.size(); ++base)
      lowered_.bases[base].needs_gradient = lowered_.bases[base].needs_gradient && reached[base];
  }

  // ---- bases and operands ----

  int add_base(Base base) {
    lowered_.bases.push_back(std::move(base));
    return static_cast<int>(lowered_.bases.size()) - 1;
  }

  // Tied parameters are one base.
  void add_parameters() {
    const Graph& graph = lowered_.graph;
    std::vector<int> base_of(graph.inputs.size(), -1);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Input& input = graph.inputs[i];
      if (input.kind != InputKind::Parameter) continue;
      const size_t owner = input.tied_to >= 0 ? static_cast<size_t>(input.tied_to) : i;
      const View view = dense_view(graph.at(input.value).dims);
      if (base_of[owner] < 0)
        base_of[owner] = add_base({Base::Kind::Parameter, static_cast<int>(owner), view.dims, false,
                                   input.requires_grad, graph.inputs[owner].name});
      operands_[static_cast<size_t>(input.value.index)] = {base_of[owner], view};
    }
  }

  enum class Use : uint8_t { Number, Integer };

  // A value that the host prepares, in the type that it is used in. Views of prepared values are views here too.
  Operand prepared(ValueId value, Use use) {
    const PreparedView source = views_.of(value);
    const ElementType type = lowered_.graph.at(source.value).type;
    const bool converts = use == Use::Number && !is_float(type) && type != ElementType::Bool;
    const auto key = std::pair(source.value.index, converts);
    if (const auto known = prepared_.find(key); known != prepared_.end()) return {known->second, source.view};
    lowered_.prepared.push_back(converts ? to_float(source.value) : source.value);
    const Value& whole = lowered_.graph.at(source.value);
    const int base = add_base({Base::Kind::Prepared, static_cast<int>(lowered_.prepared.size()) - 1,
                               dense_view(whole.dims).dims, false, false, whole.name});
    prepared_.emplace(key, base);
    return {base, source.view};
  }

  ValueId to_float(ValueId value) {
    Graph& graph = lowered_.graph;
    const ValueId floats = graph.add({graph.at(value).name, ElementType::F32, graph.at(value).dims});
    graph.nodes.push_back(
        {find_operation("to.dtype"), "to.dtype", {value, ElementType::F32, false, false, {}}, {floats}, {}});
    return floats;
  }

  Operand operand(ValueId value, Use use = Use::Number) {
    return is_trained(value) ? operands_[static_cast<size_t>(value.index)] : prepared(value, use);
  }

  // ---- nodes ----

  void problem(std::string why) { problems_.push_back(std::move(why)); }
  void problem(const Node& node, const std::string& why) { problem(to_text(node) + ": " + why); }

  // Adds what computes the node. If it cannot be trained, its results are taken for computed ones, so that the nodes
  // that read them are checked too.
  void add(const Node& node) {
    const size_t before = problems_.size();
    try {
      lower_node(node);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      problem(node, error.what());
    }
    if (problems_.size() == before && !node.name.empty()) return;
    each_read(node, [&](ValueId id) {
      if (!is_trained(id)) lowered_.prepared.push_back(id);
    });
    for (const ValueId id : node.outputs)
      if (id.index >= 0) add_stand_in(id);
  }
  void add_stand_in(ValueId id) {
    const Value& value = lowered_.graph.at(id);
    View view;
    for (const Extent& dim : value.dims)  // a shape that no view has is an error of the node already
      view.dims.push_back(dim.per_sample ? Size{0, dim.value} : Size{dim.value, 0});
    view.strides.resize(view.dims.size());
    const int base = add_base({Base::Kind::Computed, -1, view.dims, false, is_float(value.type), value.name});
    operands_[static_cast<size_t>(id.index)] = {base, view};
  }

  void lower_node(const Node& node) {
    if (node.name.empty()) return;  // its problem is listed already
    if (node.operation == nullptr) return problem(node, "the operation is not known");
    if (is_alias(node)) {
      operands_[static_cast<size_t>(node.outputs[0].index)] = operand(std::get<ValueId>(node.arguments[0]));
      return;
    }
    if (node.name == "copy") {  // the second tensor, broadcast to the shape of the first
      const Operand from = operand(std::get<ValueId>(node.arguments[1]));
      const View shape = dense_view(lowered_.graph.at(node.outputs[0]).dims);
      operands_[static_cast<size_t>(node.outputs[0].index)] = {from.base, broadcast(from.view, shape.dims)};
      return;
    }
    if (node.operation->memory != Memory::New && add_views(node)) return;
    add_step(node);
  }

  // A node whose result is its first argument: a conversion to a floating-point type, and dropout that drops nothing.
  bool is_alias(const Node& node) const {
    if (node.name == "dropout")
      return !std::get<bool>(node.arguments[2]) || std::get<double>(node.arguments[1]) == 0;
    if (node.name != "to.dtype") return false;
    // Masks that depend on parameters are 0 or 1 in a floating-point type.
    const ElementType from = lowered_.graph.at(std::get<ValueId>(node.arguments[0])).type;
    return is_float(lowered_.graph.at(node.outputs[0]).type) && (is_float(from) || from == ElementType::Bool);
  }

  // Makes the outputs views of the first argument, or, if only a copy in order can be seen in the new shape, of a copy.
  bool add_views(const Node& node) {
    const auto* first = std::get_if<ValueId>(&node.arguments[0]);
    if (first == nullptr) return false;
    if (!view_of(lowered_.graph, node, 0, dense_view(lowered_.graph.at(*first).dims))) return false;
    Operand of = operand(*first);
    for (const bool copied : {false, true}) {
      if (copied) of = copy_of(node, *first);
      std::vector<View> views;
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (auto view = view_of(lowered_.graph, node, i, of.view)) views.push_back(*view);
      if (views.size() != node.outputs.size()) continue;
      for (size_t i = 0; i < views.size(); ++i)
        if (const std::vector<Extent>& dims = lowered_.graph.at(node.outputs[i]).dims;
            views[i].dims != dense_view(dims).dims) {
          problem(node,
                  fmt::format("its result is not of the shape {} that the file has for it", to_text(dims)));
          return true;
        }
      for (size_t i = 0; i < views.size(); ++i)
        operands_[static_cast<size_t>(node.outputs[i].index)] = {of.base, views[i]};
      return true;
    }
    return false;
  }

  Operand copy_of(const Node& node, ValueId value) {
    const ValueId copy = lowered_.graph.add(lowered_.graph.at(value));
    operands_.resize(lowered_.graph.values.size());
    trained_.resize(lowered_.graph.values.size());
    trained_[static_cast<size_t>(copy.index)] = true;
    add_step({find_operation("dense"), "dense", {value}, {copy}, node.origin});
    return operands_[static_cast<size_t>(copy.index)];
  }

  void add_step(const Node& node) {
    const Rule* const rule = find_rule(node.name);
    if (rule == nullptr) return problem(node, "it has no gradient here");
    if (rule->limit != nullptr)
      if (const std::string why = rule->limit(lowered_.graph, node); !why.empty()) return problem(node, why);
    if (node.outputs.size() != 1) return problem(node, "it has several results");
    const std::vector<Extent>& result = lowered_.graph.at(node.outputs[0]).dims;
    if (result.size() > kMostAxes)
      return problem(node, fmt::format("its result has {} axes, more than {}", result.size(), kMostAxes));
    StepPlan step{rule, node, {}, -1, false};
    bool is_sum = rule->is_sum, needs_gradient = false;
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const Use use = (rule->integers >> i & 1U) != 0 ? Use::Integer : Use::Number;
      std::vector<Operand> given;
      const auto take = [&](ValueId id) {
        if (id.index >= 0) given.push_back(operand(id, use));
      };
      if (const auto* one = std::get_if<ValueId>(&node.arguments[i])) take(*one);
      if (const auto* list = std::get_if<std::vector<ValueId>>(&node.arguments[i]))
        for (const ValueId id : *list) take(id);
      for (const Operand& operand : given) {
        const Base& base = lowered_.base(operand);
        is_sum = is_sum || (base.is_sum && base.kind == Base::Kind::Computed);
        needs_gradient = needs_gradient || base.needs_gradient;
        if (use == Use::Integer && base.kind != Base::Kind::Prepared)
          return problem(node, "its indices depend on parameters");
        if (operand.view.dims.size() > kMostAxes)
          return problem(node, fmt::format("it reads a value of {} axes, more than {}",
                                           operand.view.dims.size(), kMostAxes));
        if (base.kind == Base::Kind::Parameter && base.dims.size() > size_t{Shape::kMaxRank})
          return problem(node, fmt::format("its parameter '{}' has {} axes, more than {}", base.name,
                                           base.dims.size(), Shape::kMaxRank));
        if ((rule->weights >> i & 1U) == 0 || !base.needs_gradient) continue;
        if (base.kind != Base::Kind::Parameter)
          return problem(node, "its weight is computed from parameters");
        if (!operand.view.is_dense() || operand.view.begin != Size{} || !operand.view.covers(base.elements()))
          return problem(node, "its weight is a part of a parameter");
      }
      step.operands.push_back(std::move(given));
    }
    is_sum = rule->is_sum || (is_sum && has_one_element(lowered_.graph.at(node.outputs[0])));
    add_result(std::move(step), is_sum, needs_gradient && node.operation->gradient == Gradient::Flows);
  }

  void add_result(StepPlan step, bool is_sum, bool needs_gradient) {
    const ValueId output = step.node.outputs[0];
    const Value& value = lowered_.graph.at(output);
    std::vector<Extent> memory = value.dims;
    std::vector<size_t> order;
    if (step.rule->memory_order != nullptr) order = step.rule->memory_order(value.dims.size());
    if (!order.empty())
      for (size_t axis = 0; axis < order.size(); ++axis) memory[axis] = value.dims[order[axis]];
    const View whole = dense_view(memory);
    View view = whole;
    for (size_t axis = 0; axis < order.size(); ++axis) {
      view.dims[order[axis]] = whole.dims[axis];
      view.strides[order[axis]] = whole.strides[axis];
    }
    step.output =
        add_base({Base::Kind::Computed, -1, whole.dims, is_sum, needs_gradient, step.node.origin.node});
    operands_[static_cast<size_t>(output.index)] = {step.output, view};
    lowered_.steps.push_back(std::move(step));
  }

  LoweredGraph lowered_;
  PreparedViews views_{lowered_.graph};
  std::vector<bool> trained_;                     // [value]
  std::vector<Operand> operands_;                 // [value] empty for prepared values
  std::map<std::pair<int, bool>, int> prepared_;  // the base of a value, as it is or converted to floats
  std::vector<std::string>& problems_;
};

}  // namespace

Size Base::elements() const {
  Size count{1, 0};
  for (const Size& dim : dims) {
    check(count.per_sample == 0 || dim.per_sample == 0, "the size of '{}' depends on the square of the batch",
          name);
    count = {count.fixed * dim.fixed, count.fixed * dim.per_sample + count.per_sample * dim.fixed};
  }
  return count;
}

LoweredGraph lower(Graph graph, ConstantOf constant, std::vector<std::string>& problems) {
  return Lowering(std::move(graph), constant, problems).run();
}

LoweredGraph lower(Graph graph, ConstantOf constant) {
  std::vector<std::string> problems;
  LoweredGraph lowered = lower(std::move(graph), constant, problems);
  if (!problems.empty()) bad_input("{}", refusal_text(problems));
  return lowered;
}

std::string refusal_text(const std::vector<std::string>& problems) {
  std::string text = fmt::format("the model cannot be trained, for {} reason{}:", problems.size(),
                                 problems.size() == 1 ? "" : "s");
  for (const std::string& problem : problems) text += "\n  " + problem;
  return text;
}

}  // namespace trifold::graph
