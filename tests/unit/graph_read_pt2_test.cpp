#include "graph/pt2/read_pt2.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "graph/lower/lowered.h"
#include "graph/operations.h"
#include "graph/reach.h"
#include "support/files.h"

namespace trifold::graph {
namespace {

using nlohmann::json;
using test::error_of;

json size(int64_t value) { return {{"as_int", value}}; }
json batch(int64_t factor = 1) {
  const std::string symbol = "Symbol('s0', positive=True, integer=True)";
  const std::string text = factor == 1 ? symbol : fmt::format("Mul(Integer({}), {})", factor, symbol);
  return {{"as_expr", {{"expr_str", text}, {"hint", {{"as_int", 3 * factor}}}}}};
}
json tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }
json named(const std::string& name, const json& argument) {
  return {{"name", name}, {"arg", argument}, {"kind", 1}};
}

// A file's graph with one parameter w [4, 2], one buffer b [4] and one input x [batch, 4]; nodes are added to it.
class File {
 public:
  File() {
    value("p_w", 7, {size(4), size(2)});
    value("b_b", 7, {size(4)});
    value("x", 7, {batch(), size(4)});
    inputs_ =
        json::array({{{"parameter", {{"arg", {{"name", "p_w"}}}, {"parameter_name", "w"}}}},
                     {{"buffer", {{"arg", {{"name", "b_b"}}}, {"buffer_name", "b"}, {"persistent", true}}}},
                     {{"user_input", {{"arg", tensor("x")}}}}});
  }
  void value(const std::string& name, int type, const std::vector<json>& sizes) {
    values_[name] = {{"dtype", type}, {"sizes", sizes}};
  }
  // A node of torch.ops.aten whose output has the name, type and sizes.
  File& node(const std::string& name, const std::string& operation, const std::vector<json>& inputs,
             const std::vector<json>& sizes, int type = 7) {
    value(name, type, sizes);
    nodes_.push_back({{"name", name},
                      {"target", "torch.ops.aten." + operation},
                      {"inputs", inputs},
                      {"outputs", json::array({tensor(name)})},
                      {"metadata",
                       {{"nn_module_stack", "L__self__,,model.Net;a,layers.0,torch.nn.modules.linear.Linear"},
                        {"stack_trace",
                         "File \"/p/model.py\", line 7, in forward\n    y = self.layers(x)\n"
                         "File \"/p/torch/nn/modules/linear.py\", line 9, in forward\n    z"}}}});
    return *this;
  }
  json whole(const std::string& output) const {
    const json graph{{"nodes", nodes_}, {"tensor_values", values_}, {"sym_int_values", {{"n", batch()}}}};
    const json result{{"user_output", {{"arg", tensor(output)}}}};
    const json signature{{"input_specs", inputs_}, {"output_specs", json::array({result})}};
    return {{"schema_version", {{"major", 8}, {"minor", 20}}},
            {"torch_version", "2.15.0+cpu"},
            {"range_constraints", {{"s0", {{"min_val", 2}, {"max_val", nullptr}}}}},
            {"graph_module", {{"graph", graph}, {"signature", signature}}}};
  }
  Graph read(const std::string& output) const { return read_text(whole(output).dump()).graph; }
  std::string refusal(const std::string& output) const {
    return error_of([&] { read(output); });
  }
  static Pt2Model read_text(const std::string& text) {
    StoredTensor b{"b", "m/b", ElementType::F32, {4}, {1}, 0, false};
    StoredTensor w{"w", "m/w", ElementType::F32, {4, 2}, {2, 1}, 0, true};
    return read_pt2(text, "file", {b, w});
  }

 private:
  json values_ = json::object();
  json inputs_ = json::array();
  json nodes_ = json::array();
};

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(GraphReadPt2, CompletesArgumentsByTheSchema) {
  File file;
  file.node("y", "matmul.default", {named("self", tensor("x")), named("other", tensor("p_w"))},
            {batch(), size(2)});
  file.node("z", "add.Tensor", {named("self", tensor("y")), named("other", {{"as_float", 0.5}})},
            {batch(), size(2)});
  const Graph graph = file.read("z");
  ASSERT_EQ(names_of(graph), (Names{"matmul", "add.Tensor"}));
  const Node& add = graph.nodes[1];
  ASSERT_EQ(add.arguments.size(), 3u);
  EXPECT_EQ(add.arguments[0], Argument(graph.nodes[0].outputs[0]));
  EXPECT_EQ(add.arguments[1], Argument(0.5));
  EXPECT_EQ(add.arguments[2], Argument(Extent{1}));  // alpha
  EXPECT_EQ(add.origin.line, "model.py:7: y = self.layers(x)");
  EXPECT_EQ(add.origin.module, "layers.0");
  EXPECT_EQ(add.origin.type, "Linear");
  EXPECT_EQ(graph.at(add.outputs[0]).dims, (std::vector<Extent>{{1, true}, {2}}));
  EXPECT_TRUE(graph.has_batch);
  EXPECT_EQ(graph.least_batch, 2);
  EXPECT_EQ(trained_inputs(graph, 0), (std::vector<bool>{true, false, false}));
}

TEST(GraphReadPt2, LeavesOutWhatHasNoEffect) {
  File file;
  file.node("c", "clone.default", {named("self", tensor("x"))}, {batch(), size(4)});
  file.node("d", "to.dtype", {named("self", tensor("c")), named("dtype", {{"as_scalar_type", 7}})},
            {batch(), size(4)});
  file.node("e", "to.dtype", {named("self", tensor("d")), named("dtype", {{"as_scalar_type", 8}})},
            {batch(), size(4)}, 8);
  const Graph graph = file.read("e");
  ASSERT_EQ(names_of(graph), (Names{"to.dtype"}));
  EXPECT_EQ(graph.nodes[0].arguments[0], Argument(graph.inputs[2].value));
  EXPECT_EQ(graph.nodes[0].arguments[1], Argument(ElementType::F64));
}

std::vector<json> slice_of(const char* name, int64_t start, int64_t end) {
  return {named("self", tensor(name)), named("dim", {{"as_int", 1}}), named("start", {{"as_int", start}}),
          named("end", {{"as_int", end}})};
}

TEST(GraphReadPt2, WritesThroughAViewChangeTheWholeAndItsOtherViews) {
  File file;
  file.node("c", "clone.default", {named("self", tensor("x"))}, {batch(), size(4)});
  file.node("left", "slice.Tensor", slice_of("c", 0, 2), {batch(), size(2)});
  file.node("all", "view.default",
            {named("self", tensor("c")), named("size", {{"as_sym_ints", {{{"as_name", "n"}}, size(4)}}})},
            {batch(), size(4)});
  file.node("f", "fill_.Scalar", {named("self", tensor("left")), named("value", {{"as_int", 1}})},
            {batch(), size(2)});
  file.node("y", "relu.default", {named("self", tensor("all"))}, {batch(), size(4)});
  file.node("z", "add.Tensor", {named("self", tensor("y")), named("other", tensor("x"))}, {batch(), size(4)});
  const Graph graph = file.read("z");
  ASSERT_EQ(names_of(graph),
            (Names{"slice.Tensor", "view", "fill.Scalar", "slice_scatter", "view", "relu", "add.Tensor"}));
  const Node& scatter = graph.nodes[3];
  EXPECT_EQ(scatter.arguments[0], Argument(graph.inputs[2].value));
  EXPECT_EQ(scatter.arguments[1], Argument(graph.nodes[2].outputs[0]));
  EXPECT_EQ(graph.nodes[4].arguments[0], Argument(scatter.outputs[0]));  // the other view, again
  EXPECT_EQ(graph.nodes[5].arguments[0], Argument(graph.nodes[4].outputs[0]));
  EXPECT_EQ(graph.nodes[6].arguments[1], Argument(graph.inputs[2].value));  // x itself was cloned first
}

TEST(GraphReadPt2, BuffersThatAreWrittenBecomeOutputsAndParametersMayNotBe) {
  File file;
  file.node("b1", "add_.Tensor", {named("self", tensor("b_b")), named("other", {{"as_int", 1}})}, {size(4)});
  file.node("y", "add.Tensor", {named("self", tensor("x")), named("other", tensor("b_b"))},
            {batch(), size(4)});
  const Graph graph = file.read("y");
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.outputs[1].updates, "b");
  EXPECT_EQ(graph.outputs[1].value, graph.nodes[0].outputs[0]);
  EXPECT_EQ(graph.nodes[1].arguments[1], Argument(graph.nodes[0].outputs[0]));
  File wrong;
  wrong.node("w1", "zero_.default", {named("self", tensor("p_w"))}, {size(4), size(2)});
  EXPECT_NE(wrong.refusal("w1").find("writes 'w' in place"), std::string::npos);
}

TEST(GraphReadPt2, NumbersThatAreOutputsBecomeTensors) {
  File file;
  file.node("s", "sum.default", {named("self", tensor("x"))}, {});
  json whole = file.whole("s");
  json& outputs = whole["graph_module"]["signature"]["output_specs"];
  outputs.push_back({{"user_output", {{"arg", {{"as_sym_int", {{"as_name", "n"}}}}}}}});
  outputs.push_back({{"user_output", {{"arg", {{"as_none", true}}}}}});
  const Graph graph = File::read_text(whole.dump()).graph;
  ASSERT_EQ(graph.outputs.size(), 2U);
  const Node& number = graph.nodes.back();
  EXPECT_EQ(number.name, "scalar_tensor");
  EXPECT_EQ(std::get<Extent>(number.arguments[0]), (Extent{1, true}));
  EXPECT_EQ(number.outputs[0], graph.outputs[1].value);
  outputs.push_back({{"user_output", {{"arg", {{"as_float", 0.5}}}}}});
  EXPECT_NE(error_of([&] { File::read_text(whole.dump()); }).find("a tensor, an integer or None"),
            std::string::npos);
}

TEST(GraphReadPt2, RefusesToGuessWhetherAReshapeIsACopy) {
  File file;
  file.node("c", "clone.default", {named("self", tensor("x"))}, {batch(), size(4)});
  file.node("r", "reshape.default",
            {named("self", tensor("c")), named("shape", {{"as_ints", json::array({-1})}})}, {batch(4)});
  file.node("f", "zero_.default", {named("self", tensor("r"))}, {batch(4)});
  EXPECT_EQ(names_of(file.read("f")), (Names{"reshape", "zero"}));
  file.node("y", "relu.default", {named("self", tensor("c"))}, {batch(), size(4)});
  EXPECT_NE(file.refusal("y").find("'c' may have been changed by node 'f' (zero) of layers.0, model.py:7"),
            std::string::npos);
}

TEST(GraphReadPt2, ListsUnknownOperationsWithModuleAndLine) {
  File file;
  file.node("y", "frobnicate.default",
            {named("self", tensor("p_w")), named("g", {{"as_graph", json::object()}})}, {size(4), size(2)});
  std::vector<std::string> problems;
  lower(
      file.read("y"), [](ValueId) { return std::optional<Array>(); }, problems);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems.back(),
            "node 'y' (frobnicate) of layers.0, model.py:7: y = self.layers(x): the operation is not known");
}

TEST(GraphReadPt2, RefusesWrongArgumentsByNodeAndName) {
  const auto wrong = [](const std::vector<json>& inputs) {
    File file;
    file.node("y", "gather.default", inputs, {batch(), size(4)});
    return file.refusal("y");
  };
  const json self = named("self", tensor("x")), dim = named("dim", {{"as_int", 1}});
  EXPECT_NE(
      wrong({self, dim})
          .find(
              "node 'y' (gather) of layers.0, model.py:7: y = self.layers(x): the argument 'index' is missing"),
      std::string::npos);
  EXPECT_NE(wrong({self, dim, named("axis", {{"as_int", 1}})}).find("no argument 'axis'"), std::string::npos);
  EXPECT_NE(wrong({self, dim, dim}).find("'dim' is given twice"), std::string::npos);
  EXPECT_NE(wrong({self, named("dim", {{"as_float", 1.5}})}).find("'dim' cannot be as_float"),
            std::string::npos);
  EXPECT_NE(wrong({named("self", tensor("nothing"))}).find("'nothing' is not an input"), std::string::npos);
}

TEST(GraphReadPt2, RefusesOtherVersionsSizesAndTensors) {
  const auto changed = [](const json& patch) {
    json whole = File().whole("x");
    whole.merge_patch(patch);
    return error_of([&] { File::read_text(whole.dump()); });
  };
  EXPECT_NE(
      changed({{"schema_version", {{"major", 9}}}}).find("file: the file has schema 9.20 (PyTorch 2.15.0)"),
      std::string::npos);
  EXPECT_NE(changed({{"torch_version", "2.4.1"}}).find("PyTorch 2.4.1; files of PyTorch 2.13 to 2.15"),
            std::string::npos);
  EXPECT_NE(changed({{"torch_version", "3"}}).find("PyTorch 3;"), std::string::npos);
  const auto value = [&](const char* name, const json& meta) {
    return changed({{"graph_module", {{"graph", {{"tensor_values", {{name, meta}}}}}}}});
  };
  EXPECT_NE(value("p_w", {{"dtype", 8}}).find("'w' is f64 [4, 2] in the graph, but stored as f32 [4, 2]"),
            std::string::npos);
  EXPECT_NE(value("x", {{"dtype", 9}}).find("number 9"), std::string::npos);
  EXPECT_NE(
      value("x", {{"sizes", {batch(), {{"as_expr", {{"expr_str", "Symbol('u0')"}}}}}}}).find("Symbol('u0')"),
      std::string::npos);
  const json large = {size(int64_t{1} << 40), size(int64_t{1} << 40)};
  EXPECT_NE(value("x", {{"sizes", large}}).find("too many elements"), std::string::npos);
}

// The files of tests/data, as PyTorch wrote them.
class GraphOwnModels : public ::testing::Test {
 protected:
  static std::string path(const std::string& name) {
    return TRIFOLD_TEST_DATA "/data/own_models/" + name + ".pt2";
  }
  static Graph read(const std::string& name) {
    const Archive archive(path(name));
    return read_pt2(archive.model_text(), archive.model_where(), archive.tensors()).graph;
  }
};

TEST_F(GraphOwnModels, Gpt2) {
  const Graph graph = read("gpt2");
  for (const Node& node : graph.nodes) EXPECT_NE(node.operation, nullptr) << to_text(node);
  const auto tied =
      std::find_if(graph.inputs.begin(), graph.inputs.end(), [](const Input& i) { return i.tied_to >= 0; });
  ASSERT_NE(tied, graph.inputs.end());
  EXPECT_EQ(tied->name, "model.lm_head.weight");
  EXPECT_EQ(graph.inputs[static_cast<size_t>(tied->tied_to)].name, "model.transformer.wte.weight");
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.at(graph.outputs[0].value).type, ElementType::F32);
  EXPECT_EQ(graph.at(graph.outputs[1].value).type, ElementType::I64);
  // Every parameter gets a gradient from the loss; the count of labels gives none.
  const auto trained = trained_inputs(graph, 0), counted = trained_inputs(graph, 1);
  EXPECT_EQ(std::count(trained.begin(), trained.end(), true), 29);
  EXPECT_EQ(std::count(counted.begin(), counted.end(), true), 0);
}

TEST_F(GraphOwnModels, MlpWithABufferThatForwardChanges) {
  const Graph graph = read("mlp");
  EXPECT_EQ(names_of(graph),
            (Names{"add.Tensor", "linear", "relu", "linear", "tanh", "dropout", "add.Tensor", "linear",
                   "reshape", "reshape", "cross_entropy_loss", "ne.Scalar", "sum"}));
  ASSERT_EQ(graph.outputs.size(), 3u);
  EXPECT_EQ(graph.outputs[2].updates, "calls");
}

TEST_F(GraphOwnModels, TensorsAreReadByName) {
  const Archive archive(path("mlp"));
  archive.verify();
  for (const StoredTensor& tensor : archive.tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    archive.read(tensor, bytes);
    EXPECT_TRUE(tensor.name != "first.weight" || bytes.size() == 8u * 6 * 4);
  }
}

TEST_F(GraphOwnModels, NothingButBadInputForATruncatedOrChangedGraph) {
  const Archive archive(path("mlp"));
  const std::string text = archive.model_text();
  const std::vector<StoredTensor> tensors = archive.tensors();
  const auto expect_bad_input = [&](const std::string& damaged) {
    try {
      read_pt2(damaged, "file", tensors);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    }
  };
  for (size_t bytes = 0; bytes < text.size(); bytes += 61) {
    EXPECT_NE(error_of([&] { read_pt2(text.substr(0, bytes), "file", tensors); }), "") << bytes;
  }
  for (size_t at = 0; at < text.size(); at += 31)
    for (const char c : {'9', '"', 'x', '[', '-'}) {
      std::string damaged = text;
      damaged[at] = c;
      expect_bad_input(damaged);
    }
}

}  // namespace
}  // namespace trifold::graph
