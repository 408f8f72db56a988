#include "graph/pt2/read_pt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "graph/operations.h"
#include "graph/pt2/arguments.h"
#include "graph/pt2/extent.h"
#include "graph/pt2/origin.h"
#include "graph/pt2/tensor_names.h"

namespace trifold::graph {

namespace {

// A graph of 200 layers has about 20 000 nodes of 80 JSON values each.
constexpr JsonLimits kLimits{int64_t{256} << 20, 64, 4'000'000};
constexpr size_t kMostNodes = 200'000;
constexpr size_t kMostDims = 32;
constexpr int64_t kSchemaMajor = 8;
// Minor versions of PyTorch 2 whose files are read.
constexpr int kOldest = 13, kNewest = 15;

void check_schema(const JsonView& whole, Pt2Model& model) {
  const JsonView schema = whole.at("schema_version");
  const int64_t major = schema.at("major").integer(0), minor = schema.at("minor").integer(0);
  model.schema_version = fmt::format("{}.{}", major, minor);
  model.torch_version = whole.text("torch_version", "of an unknown version");
  model.torch_version.resize(std::min(model.torch_version.find('+'), model.torch_version.size()));
  const std::string shown = printable(model.torch_version);
  if (major != kSchemaMajor)
    bad_input(
        "the file has schema {} (PyTorch {}); schemas {}.x are read: export the model with PyTorch 2.{} to 2.{}",
        model.schema_version, shown, kSchemaMajor, kOldest, kNewest);
  int version = 0;
  const std::string_view text = model.torch_version;
  const auto [end, error] =
      std::from_chars(text.data() + std::min<size_t>(2, text.size()), text.data() + text.size(), version);
  if (!text.starts_with("2.") || error != std::errc() || version < kOldest || version > kNewest)
    bad_input("the file was written by PyTorch {}; files of PyTorch 2.{} to 2.{} are read", shown, kOldest,
              kNewest);
}

// "linear" of "torch.ops.aten.linear.default", "add.Tensor" of "torch.ops.aten.add.Tensor"; other names are unchanged.
std::string operation_name(std::string_view target) {
  constexpr std::string_view kAten = "torch.ops.aten.", kDefault = ".default";
  if (!target.starts_with(kAten)) return std::string(target);
  target.remove_prefix(kAten.size());
  if (target.ends_with(kDefault)) target.remove_suffix(kDefault.size());
  return std::string(target);
}

// "add.Tensor" of "add_.Tensor": the operation whose result an in-place operation writes. Empty for other names, such
// as "__and__.Tensor".
std::string written_form(std::string_view name) {
  const size_t end = std::min(name.find('.'), name.size());
  if (end < 2 || name[end - 1] != '_' || name[end - 2] == '_') return {};
  return std::string(name.substr(0, end - 1)) + std::string(name.substr(end));
}

class Reader {
 public:
  Reader(const JsonView& whole, const std::vector<StoredTensor>& tensors)
      : whole_(whole),
        graph_view_(whole.at("graph_module").at("graph")),
        tensor_values_(graph_view_.at("tensor_values")),
        integers_(graph_view_.at("sym_int_values")),
        tensors_(tensors),
        names_(model_.graph) {}

  Pt2Model read() {
    check_schema(whole_, model_);
    const JsonView signature = whole_.at("graph_module").at("signature");
    find_batch(signature);
    argument_names_.tensor = [this](const std::string& name) { return names_.read(name); };
    argument_names_.symbolic_integers = &integers_;
    signature.at("input_specs").each([&](const JsonView& spec) { add_input(spec); });
    find_ties();
    const JsonView nodes = graph_view_.at("nodes");
    if (nodes.size() > kMostNodes) bad_input("the graph has more than {} nodes", kMostNodes);
    nodes.each([&](const JsonView& node) { add_node(node); });
    model_.file_nodes = static_cast<int>(nodes.size());
    signature.at("output_specs").each([&](const JsonView& spec) { add_output(spec); });
    add_written_inputs();
    return std::move(model_);
  }

 private:
  // The name of the tensor of a spec's "arg", which is {"name": ...} or {"as_tensor": {"name": ...}}.
  static std::string tensor_name(const JsonView& argument) {
    if (argument.has("as_tensor")) return argument.at("as_tensor").at("name").text();
    if (!argument.has("name")) argument.refuse("a tensor");
    return argument.at("name").text();
  }

  // The symbols of the first dimension of all inputs stand for the batch.
  void find_batch(const JsonView& signature) {
    signature.at("input_specs").each([&](const JsonView& spec) {
      if (!spec.has("user_input")) return;
      const JsonView sizes =
          tensor_values_.at(tensor_name(spec.at("user_input").at("arg")).c_str()).at("sizes");
      if (sizes.size() == 0 || !sizes.item(0).has("as_expr")) return;
      const std::string symbol = symbol_of(sizes.item(0).at("as_expr").at("expr_str").text());
      if (!symbol.empty()) argument_names_.batch.insert(symbol);
    });
    Graph& graph = model_.graph;
    graph.has_batch = !argument_names_.batch.empty();
    if (!whole_.has("range_constraints")) return;
    whole_.at("range_constraints").members([&](const std::string& symbol, const JsonView& range) {
      if (argument_names_.batch.count(symbol) == 0) return;
      if (range.has("min_val"))
        graph.least_batch = std::max(graph.least_batch, range.at("min_val").integer());
      if (!range.has("max_val")) return;
      const int64_t most = range.at("max_val").integer();
      graph.most_batch = std::min(graph.most_batch.value_or(most), most);
    });
  }

  // A new value with the type and sizes that the file gives for the tensor.
  ValueId new_value(const std::string& name) {
    const std::string shown = fmt::format("tensor '{}'", printable(name));
    if (!tensor_values_.has(name.c_str())) bad_input("{} has no entry in tensor_values", shown);
    const JsonView meta = tensor_values_.at(name.c_str());
    Value value{name, element_type(meta.at("dtype").integer(), shown), {}};
    const JsonView sizes = meta.at("sizes");
    if (sizes.size() > kMostDims)
      bad_input("{} has {} dims; at most {} are allowed", shown, sizes.size(), kMostDims);
    sizes.each(
        [&](const JsonView& size) { value.dims.push_back(read_size(size, argument_names_.batch, shown)); });
    const ValueId id = model_.graph.add(std::move(value));
    model_.graph.elements(id, 1);  // throws if there are too many
    return id;
  }

  void add_input(const JsonView& spec) {
    const UnionValue given = union_value(spec);
    constexpr std::array<std::pair<std::string_view, InputKind>, 4> kKinds{
        {{"parameter", InputKind::Parameter},
         {"buffer", InputKind::Buffer},
         {"tensor_constant", InputKind::Constant},
         {"user_input", InputKind::Data}}};
    if (given.kind == "constant_input") return;  // None, or a number that the graph contains
    const auto* const row = std::find_if(kKinds.begin(), kKinds.end(),
                                         [&](const auto& kind) { return kind.first == given.kind; });
    if (row == kKinds.end())
      bad_input("the model has an input of kind '{}', which is not supported: inputs must be tensors",
                printable(given.kind));
    const std::string name = tensor_name(given.value.at("arg"));
    Input input{new_value(name), row->second, name};
    names_.define(name, input.value);
    if (input.kind != InputKind::Data) {
      input.name = given.value.at(fmt::format("{}_name", given.kind).c_str()).text();
      check_stored(input);
    }
    input_names_.push_back(name);
    model_.graph.inputs.push_back(std::move(input));
  }

  const StoredTensor& stored(const std::string& name) const {
    const auto at =
        std::lower_bound(tensors_.begin(), tensors_.end(), name,
                         [](const StoredTensor& tensor, const std::string& n) { return tensor.name < n; });
    if (at == tensors_.end() || at->name != name) bad_input("the file has no tensor '{}'", printable(name));
    return *at;
  }

  void check_stored(Input& input) {
    const StoredTensor& tensor = stored(input.name);
    const Value& value = model_.graph.at(input.value);
    std::vector<Extent> sizes;
    for (const int64_t size : tensor.sizes) sizes.push_back({size});
    if (value.type != tensor.type || value.dims != sizes)
      bad_input("the tensor '{}' is {} {} in the graph, but stored as {} {}", printable(input.name),
                name_of(value.type), to_text(value.dims), name_of(tensor.type), to_text(sizes));
    input.requires_grad = input.kind == InputKind::Parameter && tensor.requires_grad;
  }

  // Parameters with the same memory are tied. Parameters that share a part of it are refused.
  void find_ties() {
    std::map<std::pair<std::string, int64_t>, int> first;  // by member and offset
    std::vector<Input>& inputs = model_.graph.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind == InputKind::Data) continue;
      const StoredTensor& tensor = stored(inputs[i].name);
      const auto [at, added] = first.emplace(std::pair(tensor.member, tensor.offset), static_cast<int>(i));
      if (added) continue;
      const Input& other = inputs[static_cast<size_t>(at->second)];
      if (tensor.same_memory(stored(other.name)))
        inputs[i].tied_to = at->second;
      else if (inputs[i].kind == InputKind::Parameter || other.kind == InputKind::Parameter)
        bad_input("'{}' and '{}' share memory with different shapes, which is not supported",
                  printable(other.name), printable(inputs[i].name));
    }
  }

  void add_node(const JsonView& view) {
    const Origin origin = read_origin(view);
    try {
      add_operation(view, origin);
    } catch (Error& error) {
      Node node;
      node.name = operation_name(view.text("target", ""));
      node.origin = origin;
      error.add_context(to_text(node));
      throw;
    }
  }

  void add_operation(const JsonView& view, const Origin& origin) {
    const JsonView outputs = view.at("outputs");
    const std::string target = view.at("target").text();
    if (makes_sizes(outputs)) return;  // sym_int_values has their values
    Node node;
    node.name = operation_name(target);
    node.origin = origin;
    node.operation = find_operation(node.name);
    const std::string written = node.operation == nullptr ? written_form(node.name) : std::string();
    const bool in_place = !written.empty() && find_operation(written) != nullptr;
    if (in_place) {
      node.name = written;
      node.operation = find_operation(written);
    }
    if (node.operation == nullptr) {
      node.arguments = read_tensors(view.at("inputs"), argument_names_);
      return define_outputs(std::move(node), outputs, {}, Memory::New);
    }
    if (node.operation->form == Form::Check) return;
    const std::vector<Parameter> parameters = parameters_of(*node.operation);
    node.arguments = read_arguments(view.at("inputs"), parameters, argument_names_);
    const std::string first = tensor_given(view, parameters.front().name);
    const Operation& operation = *node.operation;
    if (in_place)
      write(std::move(node), view, first);
    else if (operation.form == Form::Identity)
      define_same(node, view, first);
    else
      define_outputs(std::move(node), outputs, first, operation.memory);
  }

  // Whether a node computes numbers only, such as sym_size.
  static bool makes_sizes(const JsonView& outputs) {
    if (outputs.size() == 0) return false;
    bool only = true;
    outputs.each(
        [&](const JsonView& output) { only = only && union_value(output).kind.starts_with("as_sym_"); });
    return only;
  }

  // The name of the tensor that is given for a parameter; empty if it is not one tensor.
  static std::string tensor_given(const JsonView& node, std::string_view parameter) {
    std::string name;
    node.at("inputs").each([&](const JsonView& input) {
      const JsonView argument = input.at("arg");
      if (input.at("name").text() == parameter && argument.has("as_tensor"))
        name = argument.at("as_tensor").at("name").text();
    });
    return name;
  }

  static std::string only_output(const JsonView& node) {
    const JsonView outputs = node.at("outputs");
    if (outputs.size() != 1) outputs.refuse("a list of one output");
    return tensor_name(outputs.item(0));
  }

  // Calls body(name) for each output that is a tensor, also within lists; with an empty name for None.
  template <class Body>
  static void each_output(const JsonView& outputs, Body&& body) {
    outputs.each([&](const JsonView& output) {
      const UnionValue given = union_value(output);
      if (given.kind == "as_tensor")
        body(given.value.at("name").text());
      else if (given.kind == "as_tensors")
        given.value.each([&](const JsonView& item) { body(item.at("name").text()); });
      else if (given.kind == "as_none")
        body(std::string());
      else
        bad_input("an output of kind '{}' is not supported", printable(given.kind));
    });
  }

  // Adds the node; its outputs share memory with `base` as `memory` says.
  void define_outputs(Node node, const JsonView& outputs, const std::string& base, Memory memory) {
    std::vector<std::string> names;
    each_output(outputs, [&](const std::string& name) {
      names.push_back(name);
      node.outputs.push_back(name.empty() ? ValueId() : new_value(name));
    });
    const std::vector<ValueId> values = node.outputs;
    add_to_graph(std::move(node));
    const int index = static_cast<int>(model_.graph.nodes.size()) - 1;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      if (memory == Memory::New || base.empty())
        names_.define(names[i], values[i]);
      else if (memory == Memory::View)
        names_.define_view(names[i], values[i], base, index, static_cast<int>(i));
      else
        names_.define_either(names[i], values[i], base);
    }
  }

  void add_to_graph(Node node) {
    if (model_.graph.nodes.size() >= kMostNodes) bad_input("the graph has more than {} nodes", kMostNodes);
    model_.graph.nodes.push_back(std::move(node));
  }

  ValueId first_value(const Node& node) {
    const auto* value = std::get_if<ValueId>(&node.arguments.front());
    if (value == nullptr) bad_input("its first argument is not a tensor");
    return *value;
  }

  // The operation only names its first argument anew, or converts it to another element type.
  void define_same(const Node& node, const JsonView& view, const std::string& base) {
    const std::string name = only_output(view);
    const ValueId from = first_value(node), to = new_value(name);
    const Value& before = model_.graph.at(from);
    const Value& after = model_.graph.at(to);
    if (before.dims != after.dims) bad_input("its output has another shape than its input");
    if (before.type != after.type) {
      const ElementType type = after.type;
      Node conversion{
          find_operation("to.dtype"), "to.dtype", {from, type, false, false, {}}, {to}, node.origin};
      add_to_graph(std::move(conversion));
      return names_.define(name, to);
    }
    model_.graph.values.pop_back();  // the value is the argument's
    if (node.operation->memory == Memory::View)
      names_.define_view(name, from, base, -1, 0);
    else if (node.operation->memory == Memory::Either)
      names_.define_either(name, from, base);
    else
      names_.define(name, from);
  }

  // The operation writes its result over its first argument.
  void write(Node node, const JsonView& view, const std::string& base) {
    const std::string name = only_output(view);
    const Value before = model_.graph.at(first_value(node));
    ValueId value = first_value(node);
    const std::string by = to_text(node);
    if (node.operation->form == Form::Node) {
      value = model_.graph.add({name, before.type, before.dims});
      node.outputs = {value};
      add_to_graph(std::move(node));
    }
    names_.write(base, value, by);
    names_.define_view(name, value, base, -1, 0);
  }

  void add_output(const JsonView& spec) {
    const UnionValue given = union_value(spec);
    Output output;
    if (given.kind == "buffer_mutation")
      output.updates = given.value.at("buffer_name").text();
    else if (given.kind != "user_output" && given.kind != "loss_output")
      bad_input("the model has an output of kind '{}', which is not supported", printable(given.kind));
    const JsonView argument = given.value.at("arg");
    if (argument.has("as_none")) return;
    output.value = argument.has("as_tensor") || argument.has("name") ? names_.read(tensor_name(argument))
                                                                     : number_output(argument);
    model_.graph.outputs.push_back(std::move(output));
  }

  // A number that is an output, such as the size of the batch, becomes a tensor.
  ValueId number_output(const JsonView& argument) {
    const std::optional<Extent> number = read_integer(argument, argument_names_);
    if (!number) argument.refuse("a tensor, an integer or None");
    constexpr std::string_view kName = "scalar_tensor";
    const ValueId value = model_.graph.add({"number", ElementType::I64, {}});
    Node node{find_operation(kName), std::string(kName), {*number}, {value}, {}};
    node.origin.node = "number";
    add_to_graph(std::move(node));
    return value;
  }

  // Buffers that were written in place become outputs.
  void add_written_inputs() {
    Graph& graph = model_.graph;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Input& input = graph.inputs[i];
      if (input.kind == InputKind::Data) continue;
      const ValueId value = names_.read(input_names_[i]);
      if (value == input.value) continue;
      if (input.kind != InputKind::Buffer)
        bad_input("the model writes '{}' in place, which only buffers may be", printable(input.name));
      graph.outputs.push_back({value, input.name});
    }
  }

  const JsonView& whole_;
  JsonView graph_view_, tensor_values_, integers_;
  const std::vector<StoredTensor>& tensors_;
  Pt2Model model_;
  TensorNames names_;
  ArgumentNames argument_names_;
  std::vector<std::string> input_names_;  // in the graph, of each of Graph::inputs
};

}  // namespace

Pt2Model read_pt2(std::string_view text, const std::string& where, const std::vector<StoredTensor>& tensors) {
  const nlohmann::json whole = parse_json(text, where, kLimits);
  try {
    return Reader(JsonView(whole), tensors).read();
  } catch (Error& error) {
    error.add_context(where);
    throw;
  }
}

}  // namespace trifold::graph
