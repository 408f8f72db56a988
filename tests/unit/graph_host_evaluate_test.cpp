#include "graph/host/evaluate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "files/npz_file.h"
#include "graph/host/strided.h"
#include "graph/operations.h"
#include "graph/pt2/archive.h"
#include "graph/pt2/read_pt2.h"
#include "support/files.h"

namespace trifold::graph {
namespace {

using test::error_of;

constexpr int64_t kSamples = 3;
const std::string kFolder = std::string(TRIFOLD_TEST_DATA) + "/data/own_models/host/";

// All elements of an array of an .npz file as f64.
std::vector<double> numbers(const NpzFile& file, const std::string& name) {
  const auto rows = file.open(name);
  std::vector<double> all;
  const auto bytes = rows->next(rows->header().rows());
  const auto each = static_cast<size_t>(rows->header().number_bytes());
  for (size_t at = 0; at < bytes.size(); at += each)
    all.push_back(
        rows->header().visit(bytes.data() + at, [](auto value) { return static_cast<double>(value); }));
  return all;
}

Array array_of(ElementType type, const Dims& dims, const std::vector<double>& elements) {
  Array array = make_array(ElementType::F64, dims);
  EXPECT_EQ(std::ssize(elements), array.elements());
  std::copy(elements.begin(), elements.end(), array.as<double>());
  return converted(array, type);
}

std::vector<double> elements_of(const Array& array) {
  const Array wide = converted(array, ElementType::F64);
  return {wide.as<double>(), wide.as<double>() + wide.elements()};
}

Pt2Model read_operations(const Archive& archive) {
  return read_pt2(archive.model_text(), "operations", archive.tensors());
}

// The values of all nodes of the file for its inputs in the .npz file.
class Evaluated {
 public:
  Evaluated() : values_(model_.graph.values.size()) {
    int data = 0;
    for (const Input& input : model_.graph.inputs) {
      const Value& value = model_.graph.at(input.value);
      Dims dims;
      for (const Extent& extent : value.dims)
        dims.push_back(extent.value * (extent.per_sample ? kSamples : 1));
      values_[index(input.value)] =
          input.kind == InputKind::Data
              ? array_of(value.type, dims, numbers(file_, fmt::format("input{}", data++)))
              : stored(input.name);
    }
    for (const Node& node : model_.graph.nodes) {
      EXPECT_TRUE(can_evaluate(node)) << to_text(node);
      if (!can_evaluate(node)) continue;
      std::vector<Array> outputs = evaluate(
          model_.graph, node, [&](ValueId id) -> const Array& { return at(id); }, kSamples);
      for (size_t i = 0; i < outputs.size(); ++i)
        if (node.outputs[i].index >= 0) values_[index(node.outputs[i])] = std::move(outputs[i]);
    }
  }

  const Graph& graph() const { return model_.graph; }
  const NpzFile& file() const { return file_; }
  const Array& at(ValueId id) const { return *values_[index(id)]; }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id.index); }

  Array stored(const std::string& name) const {
    for (const StoredTensor& tensor : archive_.tensors()) {
      if (tensor.name != name) continue;
      Array array = make_array(tensor.type, tensor.sizes);
      archive_.read(tensor, array.bytes);
      return array;
    }
    ADD_FAILURE() << name;
    return {};
  }

  Archive archive_{kFolder + "operations.pt2"};
  NpzFile file_{kFolder + "operations.npz"};
  Pt2Model model_ = read_operations(archive_);
  std::vector<std::optional<Array>> values_;
};

// Sums and functions of floats may be rounded in another way.
bool agree(double seen, double wanted, ElementType type) {
  if (std::isnan(wanted) || std::isinf(wanted) || !is_float(type))
    return seen == wanted || (std::isnan(seen) && std::isnan(wanted));
  const double unit = type == ElementType::F64    ? 1e-14
                      : type == ElementType::F32  ? 2e-6
                      : type == ElementType::BF16 ? 8e-3
                                                  : 1e-3;
  return std::abs(seen - wanted) <= unit * std::max(1.0, std::abs(wanted));
}

TEST(HostEvaluate, AgreesWithPyTorchInEveryOutput) {
  const Evaluated evaluated;
  std::map<std::string, std::vector<double>> wanted;
  std::map<std::string, size_t> next;
  for (const char* name : {"f64", "f32", "i64"}) wanted[name] = numbers(evaluated.file(), name);
  std::map<int, const Node*> makers;
  for (const Node& node : evaluated.graph().nodes)
    for (const ValueId id : node.outputs) makers[id.index] = &node;
  for (const Output& output : evaluated.graph().outputs) {
    const Array& array = evaluated.at(output.value);
    const std::string kind = !is_float(array.type) ? "i64" : array.type == ElementType::F64 ? "f64" : "f32";
    const std::vector<double> seen = elements_of(array);
    ASSERT_LE(next[kind] + seen.size(), wanted[kind].size());
    for (size_t i = 0; i < seen.size(); ++i) {
      const double right = wanted[kind][next[kind] + i];
      EXPECT_TRUE(agree(seen[i], right, array.type))
          << to_text(*makers.at(output.value.index)) << "\nelement " << i << " of " << dims_text(array.dims)
          << " is " << seen[i] << ", PyTorch has " << right;
      if (!agree(seen[i], right, array.type)) break;
    }
    next[kind] += seen.size();
  }
  for (const auto& [kind, all] : wanted) EXPECT_EQ(next[kind], all.size()) << kind;
}

TEST(HostEvaluate, TheFileHasEveryOperationThatIsEvaluated) {
  const Archive archive(kFolder + "operations.pt2");
  const Graph graph = read_operations(archive).graph;
  std::set<std::string_view> seen{"dropout"};
  for (const Node& node : graph.nodes) seen.insert(node.name);
  for (const Operation& operation : operations()) {
    const Node node{&operation, std::string(operation.name), {}, {}, {}};
    EXPECT_TRUE(!can_evaluate(node) || seen.count(operation.name) > 0) << operation.name;
  }
}

// Changes one thing of a node: an argument, or type or shape of an output.
class Change {
 public:
  explicit Change(uint32_t seed) : random_(seed) {}

  void operator()(Graph& graph, Node& node) {
    const size_t arguments = node.arguments.size(), choice = below(arguments + 1);
    if (choice < arguments) return change(node.arguments[choice], graph);
    const ValueId output = node.outputs[below(node.outputs.size())];
    if (output.index < 0) return;
    Value& value = graph.values[static_cast<size_t>(output.index)];
    if (below(3) == 0)
      value.type = static_cast<ElementType>(below(11));
    else if (!value.dims.empty() && below(4) > 0)
      value.dims[below(value.dims.size())] = {number(), below(4) == 0};
    else
      value.dims.push_back({number()});
  }

 private:
  size_t below(size_t count) { return count == 0 ? 0 : random_() % count; }
  int64_t number() {
    constexpr std::array<int64_t, 11> kNumbers{INT64_MIN, -(int64_t{1} << 40), -7,       -2, -1, 0, 1, 2,
                                               5,         int64_t{1} << 40,    INT64_MAX};
    return kNumbers[below(kNumbers.size())];
  }
  void change(Argument& argument, const Graph& graph) {
    const ValueId any{static_cast<int>(below(graph.values.size()))};
    if (below(8) == 0)
      argument = {};
    else if (std::holds_alternative<ValueId>(argument))
      argument = any;
    else if (auto* list = std::get_if<std::vector<ValueId>>(&argument); list != nullptr && !list->empty())
      (*list)[below(list->size())] = below(4) == 0 ? ValueId() : any;
    else if (auto* sizes = std::get_if<std::vector<Extent>>(&argument); sizes != nullptr && !sizes->empty())
      (*sizes)[below(sizes->size())] = {number()};
    else if (std::holds_alternative<bool>(argument))
      argument = !std::get<bool>(argument);
    else
      argument = Extent{number()};
  }

  std::mt19937 random_;
};

TEST(HostEvaluate, NothingButErrorsForChangedNodes) {
  const Evaluated evaluated;
  Change change(3);
  int refused = 0;
  for (int round = 0; round < 20; ++round) {
    Graph graph = evaluated.graph();
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node node = graph.nodes[i];
      std::vector<Value> before;
      for (const ValueId id : node.outputs) before.push_back(id.index < 0 ? Value() : graph.at(id));
      change(graph, node);
      try {
        evaluate(
            graph, node, [&](ValueId id) -> const Array& { return evaluated.at(id); }, kSamples);
      } catch (const Error&) {
        ++refused;
      }
      for (size_t o = 0; o < before.size(); ++o)
        if (node.outputs[o].index >= 0) graph.values[static_cast<size_t>(node.outputs[o].index)] = before[o];
    }
  }
  EXPECT_GT(refused, 500);
}

// A graph of one node with these arguments and inputs.
class OneNode {
 public:
  OneNode& input(Array array) {
    graph_.add({fmt::format("v{}", inputs_.size()), array.type, extents(array.dims)});
    inputs_.push_back(std::move(array));
    return *this;
  }
  OneNode& output(ElementType type, const Dims& dims) {
    node_.outputs.push_back(graph_.add({"result", type, extents(dims)}));
    return *this;
  }
  Array run(const std::string& name, std::vector<Argument> arguments) {
    node_.operation = find_operation(name);
    node_.name = name;
    node_.arguments = std::move(arguments);
    node_.origin.node = "one";
    return evaluate(
               graph_, node_,
               [&](ValueId id) -> const Array& { return inputs_.at(static_cast<size_t>(id.index)); }, 1)
        .at(0);
  }

 private:
  static std::vector<Extent> extents(const Dims& dims) {
    std::vector<Extent> all;
    for (const int64_t extent : dims) all.push_back({extent});
    return all;
  }
  Graph graph_;
  Node node_;
  std::vector<Array> inputs_;
};

Array integers(const Dims& dims, const std::vector<double>& elements) {
  return array_of(ElementType::I64, dims, elements);
}

TEST(HostEvaluate, NamesTheNodeOfAnIndexOutOfRange) {
  const auto chosen = [](const std::string& name, double index, std::vector<Argument> arguments) {
    return error_of([&] {
      OneNode()
          .input(integers({3}, {1, 2, 3}))
          .input(integers({1}, {index}))
          .output(ElementType::I64, {1})
          .run(name, std::move(arguments));
    });
  };
  const std::string message =
      "node 'one' (index_select): index 3 is out of range: the dim has an extent of 3";
  EXPECT_EQ(chosen("index_select", 3, {ValueId{0}, Extent{0}, ValueId{1}}), message);
  EXPECT_NE(chosen("gather", -1, {ValueId{0}, Extent{0}, ValueId{1}, false}).find("index -1"),
            std::string::npos);
  EXPECT_NE(chosen("index.Tensor", -4, {ValueId{0}, std::vector<ValueId>{{1}}}).find("index -4"),
            std::string::npos);
}

TEST(HostEvaluate, RefusesShapesThatDoNotFit) {
  EXPECT_NE(error_of([] {
              OneNode()
                  .input(integers({3}, {1, 2, 3}))
                  .input(integers({2}, {1, 2}))
                  .output(ElementType::I64, {3})
                  .run("add.Tensor", {ValueId{0}, ValueId{1}, Extent{1}});
            }).find("shapes [3] and [2] do not fit together"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              OneNode()
                  .input(integers({3}, {1, 2, 3}))
                  .output(ElementType::I64, {2, 2})
                  .run("view", {ValueId{0}, std::vector<Extent>{{2}, {2}}});
            }).find("of shape [3] cannot become one of shape [2, 2]"),
            std::string::npos);
  EXPECT_NE(
      error_of([] {
        OneNode().input(integers({3}, {1, 2, 3})).output(ElementType::F32, {3}).run("neg", {ValueId{0}});
        OneNode().input(integers({3}, {1, 2, 3})).output(ElementType::I64, {2}).run("neg", {ValueId{0}});
      }).find("its output 0 is i64 [2] in the graph, but i64 [3] when it is computed"),
      std::string::npos);
  EXPECT_NE(error_of([] {
              OneNode()
                  .output(ElementType::I64, {int64_t{1} << 40})
                  .run("zeros", {std::vector<Extent>{}, {}, {}, {}, {}});
            }).find("more than 68719476736 bytes"),
            std::string::npos);
}

TEST(HostEvaluate, ArithmeticOfIntegersWraps) {
  const Array most = integers({1}, {-9223372036854775808.0});
  EXPECT_EQ(*OneNode().input(most).output(ElementType::I64, {1}).run("neg", {ValueId{0}}).as<int64_t>(),
            INT64_MIN);
  EXPECT_EQ(*OneNode()
                 .input(most)
                 .output(ElementType::I64, {1})
                 .run("sub.Scalar", {ValueId{0}, Extent{1}, Extent{1}})
                 .as<int64_t>(),
            INT64_MAX);
}

TEST(HostEvaluate, RandomDropoutIsNotEvaluated) {
  Node node{find_operation("dropout"), "dropout", {ValueId{0}, 0.1, true}, {}, {}};
  EXPECT_FALSE(can_evaluate(node));
  node.arguments = {ValueId{0}, 0.1, false};
  EXPECT_TRUE(can_evaluate(node));
  node.operation = nullptr;
  EXPECT_FALSE(can_evaluate(node));
}

}  // namespace
}  // namespace trifold::graph
