#include "graph/preparation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "graph/host/evaluate.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

// Dropout in training; a dropout whose arguments cannot be read counts too.
bool is_random(const Node& node) {
  return node.operation != nullptr && node.operation->name == "dropout" && !can_evaluate(node);
}

bool has_batch(const std::vector<Extent>& extents) {
  return std::any_of(extents.begin(), extents.end(), [](const Extent& extent) { return extent.per_sample; });
}

// Whether the node depends on the number of samples, by a number or by the shape of an output.
bool depends_on_batch(const Graph& graph, const Node& node) {
  for (const Argument& argument : node.arguments) {
    const auto* one = std::get_if<Extent>(&argument);
    const auto* list = std::get_if<std::vector<Extent>>(&argument);
    if ((one != nullptr && one->per_sample) || (list != nullptr && has_batch(*list))) return true;
  }
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id.index >= 0 && has_batch(graph.at(id).dims); });
}

}  // namespace

std::vector<Dependence> partition(const Graph& graph) {
  std::vector<Dependence> kinds(graph.values.size(), Dependence::Constant);
  const auto kind = [&](ValueId id) -> Dependence& { return kinds[static_cast<size_t>(id.index)]; };
  for (const Input& input : graph.inputs) {
    if (input.kind == InputKind::Data) kind(input.value) = Dependence::Prepared;
    if (input.kind == InputKind::Parameter) kind(input.value) = Dependence::Trained;
  }
  for (const Node& node : graph.nodes) {
    Dependence most = depends_on_batch(graph, node) ? Dependence::Prepared : Dependence::Constant;
    if (is_random(node)) most = Dependence::Trained;
    each_read(node, [&](ValueId id) { most = std::max(most, kind(id)); });
    for (const ValueId id : node.outputs)
      if (id.index >= 0) kind(id) = most;
  }
  return kinds;
}

namespace {

std::vector<bool> needed_values(const Graph& graph, const std::vector<ValueId>& wanted,
                                const std::vector<Dependence>& kinds) {
  std::vector<bool> needed(graph.values.size());
  const auto need = [&](ValueId id) { needed[static_cast<size_t>(id.index)] = true; };
  for (const ValueId id : wanted) {
    check(id.index >= 0 && static_cast<size_t>(id.index) < kinds.size(),
          "a wanted value is not in the graph");
    check(kinds[static_cast<size_t>(id.index)] != Dependence::Trained,
          "value '{}' depends on parameters and cannot be prepared", printable(graph.at(id).name));
    need(id);
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node)
    if (std::any_of(node->outputs.begin(), node->outputs.end(),
                    [&](ValueId id) { return id.index >= 0 && needed[static_cast<size_t>(id.index)]; }))
      each_read(*node, need);
  return needed;
}

bool makes_needed(const Node& node, const std::vector<bool>& needed) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id.index >= 0 && needed[static_cast<size_t>(id.index)]; });
}

std::vector<std::string> problems_of(const Graph& graph, const std::vector<bool>& needed) {
  std::vector<std::string> problems;
  for (const Node& node : graph.nodes)
    if (makes_needed(node, needed) && !can_evaluate(node))
      problems.push_back(to_text(node) +
                         (node.operation == nullptr
                              ? ": the operation is not known"
                              : ": the host cannot compute it from arrays of the batch and constants"));
  std::set<std::string_view> changed;
  for (const Output& output : graph.outputs)
    if (!output.updates.empty()) changed.insert(output.updates);
  for (const Input& input : graph.inputs)
    if (input.kind == InputKind::Buffer && needed[static_cast<size_t>(input.value.index)] &&
        changed.contains(input.name))
      problems.push_back(fmt::format(
          "the model reads the buffer '{}' outside its layers with parameters and changes it in each forward, which "
          "is not supported: such values must stay the same",
          printable(input.name)));
  return problems;
}

}  // namespace

std::vector<std::string> preparation_problems(const Graph& graph, const std::vector<ValueId>& wanted) {
  return problems_of(graph, needed_values(graph, wanted, partition(graph)));
}

Preparation::Preparation(const Graph& graph, std::vector<ValueId> wanted, DType floats,
                         FunctionRef<Array(const Input&)> stored, std::vector<IdCheck> checks)
    : graph_(graph),
      wanted_(std::move(wanted)),
      checks_(std::move(checks)),
      layout_(graph, wanted_, floats),
      places_(graph.values.size()) {
  const std::vector<Dependence> kinds = partition(graph);
  const std::vector<bool> needed = needed_values(graph, wanted_, kinds);
  if (const std::vector<std::string> problems = problems_of(graph, needed); !problems.empty())
    bad_input("the arrays that the model reads cannot be prepared:\n  {}", fmt::join(problems, "\n  "));
  load_inputs(needed, stored);
  fold_or_plan(needed, kinds);
  drop_unread_constants();
  find_last_uses();
}

void Preparation::load_inputs(const std::vector<bool>& needed, FunctionRef<Array(const Input&)> stored) {
  for (const Input& input : graph_.inputs) {
    if (input.kind == InputKind::Data) {
      place(input.value) = {Place::Kind::Data, data_.size()};
      data_.push_back(input);
    } else if (needed[static_cast<size_t>(input.value.index)]) {
      Array array = stored(input);
      const Value& value = graph_.at(input.value);
      check(array.type == value.type && array.elements() == graph_.elements(input.value, 1),
            "'{}' was read as {} {}, but the graph has {} {}", printable(input.name), name_of(array.type),
            dims_text(array.dims), name_of(value.type), to_text(value.dims));
      place(input.value) = {Place::Kind::Constant, constants_.size()};
      constants_.push_back(std::move(array));
    }
  }
}

void Preparation::fold_or_plan(const std::vector<bool>& needed, const std::vector<Dependence>& kinds) {
  const auto constant = [&](ValueId id) -> const Array& { return constants_[place(id).index]; };
  for (const Node& node : graph_.nodes) {
    if (!makes_needed(node, needed)) continue;
    const auto first =
        std::find_if(node.outputs.begin(), node.outputs.end(), [](ValueId id) { return id.index >= 0; });
    if (kinds[static_cast<size_t>(first->index)] != Dependence::Constant) {
      for (const ValueId id : node.outputs)
        if (id.index >= 0) place(id) = {Place::Kind::Computed, computed_++};
      steps_.push_back({&node, {}});
      continue;
    }
    std::vector<Array> outputs = evaluate(graph_, node, constant, 1);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i].index < 0) continue;
      place(node.outputs[i]) = {Place::Kind::Constant, constants_.size()};
      constants_.push_back(std::move(outputs[i]));
    }
  }
}

// Constants that only made other constants are not kept.
void Preparation::drop_unread_constants() {
  std::vector<bool> read(constants_.size());
  const auto note = [&](ValueId id) {
    if (place(id).kind == Place::Kind::Constant) read[place(id).index] = true;
  };
  for (const Step& step : steps_) each_read(*step.node, note);
  for (const ValueId id : wanted_) note(id);
  for (size_t i = 0; i < constants_.size(); ++i)
    if (!read[i]) constants_[i] = {};
}

void Preparation::find_last_uses() {
  std::vector<bool> seen(computed_);
  for (const ValueId id : wanted_)
    if (place(id).kind == Place::Kind::Computed) seen[place(id).index] = true;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto use = [&](ValueId id) {
      if (place(id).kind != Place::Kind::Computed || seen[place(id).index]) return;
      seen[place(id).index] = true;
      step->last_uses.push_back(place(id).index);
    };
    each_read(*step->node, use);
    for (const ValueId id : step->node->outputs)
      if (id.index >= 0) use(id);  // an output that nothing reads
  }
}

void Preparation::check_data(std::span<const Array> data, int64_t batch) const {
  check(data.size() == data_.size(), "{} arrays are given to a model that takes {}", data.size(),
        data_.size());
  for (size_t i = 0; i < data.size(); ++i) {
    const Value& value = graph_.at(data_[i].value);
    std::vector<int64_t> dims;
    for (const Extent& extent : value.dims)
      dims.push_back(extent.per_sample ? extent.value * batch : extent.value);
    if (data[i].type != value.type || data[i].dims != dims)
      bad_input("the array '{}' is {} {}, but the model takes {} {} for {} samples", printable(data_[i].name),
                name_of(data[i].type), dims_text(data[i].dims), name_of(value.type), dims_text(dims), batch);
  }
}

// The values of one run.
class Preparation::Values {
 public:
  Values(const Preparation& plan, std::span<const Array> data, int64_t batch,
         std::span<const int64_t> samples)
      : plan_(plan), data_(data), computed_(plan.computed_) {
    plan.check_data(data, batch);
    for (const Step& step : plan.steps_) {
      std::vector<Array> outputs = evaluate(
          plan.graph_, *step.node, [this](ValueId id) -> const Array& { return at(id); }, batch);
      for (size_t i = 0; i < outputs.size(); ++i)
        if (step.node->outputs[i].index >= 0)
          computed_[plan.place(step.node->outputs[i]).index] = std::move(outputs[i]);
      for (const size_t index : step.last_uses) computed_[index] = {};
    }
    std::vector<const Array*> wanted;
    for (const ValueId id : plan.wanted_) wanted.push_back(&at(id));
    for (const IdCheck& check : plan.checks_) check_ids(check, wanted, batch, samples);
  }

  const Array& at(ValueId id) const {
    const Place& place = plan_.place(id);
    if (place.kind == Place::Kind::Data) return data_[place.index];
    if (place.kind == Place::Kind::Constant) return plan_.constants_[place.index];
    check(place.kind == Place::Kind::Computed, "value '{}' is read but not computed",
          printable(plan_.graph_.at(id).name));
    return computed_[place.index];
  }

 private:
  const Preparation& plan_;
  std::span<const Array> data_;
  std::vector<Array> computed_;
};

std::vector<Array> Preparation::run(std::span<const Array> data, int64_t batch,
                                    std::span<const int64_t> samples) const {
  const Values values(*this, data, batch, samples);
  std::vector<Array> wanted;
  for (const ValueId id : wanted_) wanted.push_back(values.at(id));
  return wanted;
}

void Preparation::write(std::span<const Array> data, int64_t batch, std::span<std::byte> block,
                        std::span<const int64_t> samples) const {
  const Values values(*this, data, batch, samples);
  for (size_t i = 0; i < wanted_.size(); ++i) layout_.write(i, values.at(wanted_[i]), batch, block);
}

}  // namespace trifold::graph
