// Long graphs, as a file of any content may hold: lowering needs time in proportion to their nodes, and no deep stack.
#include <gtest/gtest.h>

#include <ctime>

#include "graph/lower/constants.h"
#include "graph/lower/graph_block.h"
#include "graph/preparation.h"
#include "graph_small_model.h"
#include "support/files.h"
#include "support/sanitizer.h"

namespace trifold::graph::lowering {
namespace {

constexpr int kMany = 30'000;

// Adds nodes to a graph that begins as text.
class LongModel {
 public:
  explicit LongModel(const std::string& text) : model_(text) {}

  ValueId at(const std::string& name) const { return model_.at(name); }
  Graph& graph() { return model_.graph; }
  ValueId add(const std::string& name, std::vector<Argument> arguments, std::vector<Extent> dims,
              ElementType type = ElementType::F64) {
    const ValueId value = graph().add({name, type, std::move(dims)});
    graph().nodes.push_back(
        {find_operation(name), name, std::move(arguments), {value}, {name, module, {}, {}}});
    return value;
  }
  // Ends the graph with the sum of the value.
  void sum(ValueId value) { graph().outputs.push_back({add("sum", {value, {}}, {}), {}}); }

  LoweredGraph lowered() {
    const auto stored = [&](const Input& input) { return model_.elements(input, 1); };
    Constants constants(graph(), stored);
    return lower(graph(), [&](ValueId id) { return constants(id); });
  }

  std::string module;  // the module of nodes that are added

 private:
  SmallModel model_;
};

// Fails if the test's own time is not short. Work that grows with the square of the nodes takes far longer.
class LongGraphs : public testing::Test {
 protected:
  LongGraphs() : begin_(std::clock()) {}
  ~LongGraphs() override {
    const double seconds = static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, test::kSanitized ? 60 : 5);
  }

 private:
  std::clock_t begin_;
};

const std::string kText =
    "w: parameter [6]\n"
    "x: data [b, 6]\n"
    "i: data i64 [b] below 6\n"
    "h [b, 6] = mul.Tensor x w\n";
const std::vector<Extent> kRow{{1, true}, {6}}, kColumn{{6}, {1, true}};

// Views of the value, one of another.
ValueId chain_of_views(LongModel& model, ValueId value) {
  for (int i = 0; i < kMany; ++i)
    value = model.add("transpose.int", {value, Extent{0}, Extent{1}}, i % 2 == 0 ? kColumn : kRow);
  return value;
}

TEST_F(LongGraphs, ChainOfViewsOfData) {
  LongModel model(kText);
  const ValueId last = chain_of_views(model, model.at("x"));
  model.sum(model.add("mul.Tensor", {model.at("h"), last}, kRow));
  const LoweredGraph lowered = model.lowered();
  EXPECT_EQ(lowered.prepared.size(), 1u);
  EXPECT_EQ(lowered.steps.size(), 3u);
}

TEST_F(LongGraphs, ChainOfReshapesThatAreNoViews) {
  LongModel model(kText);
  ValueId value = model.at("x");
  for (int i = 0; i < kMany / 2; ++i) {
    value = model.add("transpose.int", {value, Extent{0}, Extent{1}}, kColumn);
    value = model.add("reshape", {value, kRow}, kRow);
  }
  model.sum(model.add("mul.Tensor", {model.at("h"), value}, kRow));
  EXPECT_EQ(model.lowered().prepared.size(), 2u);  // x for h, and the last reshape
}

TEST_F(LongGraphs, EveryViewOfAChainIsUsed) {
  LongModel model(kText);
  ValueId view = model.at("x"), sum = model.at("h");
  for (int i = 0; i < kMany / 3; ++i) {
    view = model.add("transpose.int", {view, Extent{0}, Extent{1}}, kColumn);
    view = model.add("transpose.int", {view, Extent{0}, Extent{1}}, kRow);
    sum = model.add("add.Tensor", {sum, view, Extent{1}}, kRow);
  }
  model.sum(sum);
  EXPECT_EQ(model.lowered().prepared.size(), 1u);
}

TEST_F(LongGraphs, ChainOfViewsOfTrainedValues) {
  LongModel model(kText);
  model.sum(chain_of_views(model, model.at("h")));
  EXPECT_EQ(model.lowered().steps.size(), 2u);
}

TEST_F(LongGraphs, ChainOfOperations) {
  LongModel model(kText);
  ValueId value = model.at("h");
  for (int i = 0; i < kMany; ++i) value = model.add("sin", {value}, kRow);
  model.sum(value);
  const LoweredGraph lowered = model.lowered();
  EXPECT_EQ(lowered.steps.size(), kMany + 2u);
  EXPECT_EQ(lowered.blocks.size(), 1u);
}

// A parameter for each operation, of a module of its own.
TEST_F(LongGraphs, ChainOfModules) {
  LongModel model(kText);
  ValueId value = model.at("h");
  for (int i = 0; i < kMany; ++i) {
    model.module = "m." + std::to_string(i);
    value = model.add("mul.Tensor", {value, model.at("w")}, kRow);
  }
  model.sum(value);
  const auto lowered = std::make_shared<const LoweredGraph>(model.lowered());
  ASSERT_EQ(lowered->blocks.size(), kMany + 1u);  // the last has the sum
  EXPECT_EQ(lowered->blocks[7].leaving.size(), 1u);
  Mesh mesh{{}, {}};
  ParamList params;
  ReportList reports;
  ModelParameters parameters(*lowered, {});
  for (size_t i = 0; i < 1000; ++i) {
    BlockBuilder builder(params, reports, mesh, static_cast<int>(i), 7);
    const GraphBlock block(builder, lowered, i, parameters);
  }
}

TEST_F(LongGraphs, ModulesThatPassOnTooManyValues) {
  LongModel model(kText);
  std::vector<ValueId> kept;
  for (int i = 0; i < 3000; ++i) kept.push_back(model.add("sin", {model.at("h")}, kRow));
  ValueId value = model.at("h");
  for (int i = 0; i < 3000; ++i) {
    model.module = "m." + std::to_string(i);
    value = model.add("sin", {value}, kRow);
  }
  for (const ValueId each : kept) value = model.add("mul.Tensor", {value, each}, kRow);
  model.sum(value);
  test::expect_has(test::error_of([&] { model.lowered(); }),
                   "numbered modules of the model pass on more than");
}

TEST_F(LongGraphs, ManyLookupsInOneTable) {
  LongModel model("e: parameter [6, 6]\n" + kText);
  ValueId value = model.at("h");
  for (int i = 0; i < kMany / 2; ++i) {
    const ValueId rows =
        model.add("embedding", {model.at("e"), model.at("i"), Extent{-1}, false, false}, kRow);
    value = model.add("add.Tensor", {value, rows, Extent{1}}, kRow);
  }
  model.sum(value);
  const LoweredGraph lowered = model.lowered();
  // All of them follow the first one.
  EXPECT_TRUE(lowered.steps[2].joined && lowered.steps[kMany / 2].joined);
}

TEST_F(LongGraphs, ConversionsBeforeManyOperations) {
  LongModel model(kText);
  ValueId value = model.at("h");
  for (int i = 0; i < kMany / 2; ++i)
    value = model.add("to.dtype", {value, i % 2 == 0 ? ElementType::F32 : ElementType::F64, false, false, {}},
                      kRow, i % 2 == 0 ? ElementType::F32 : ElementType::F64);
  ValueId sum = value;
  for (int i = 0; i < kMany / 2; ++i) sum = model.add("mul.Tensor", {sum, value}, kRow);
  model.sum(sum);
  EXPECT_EQ(model.lowered().steps.size(), kMany / 2 + 2u);
}

// Masks that many nodes compute from constants, for many attentions.
TEST_F(LongGraphs, ConstantsOfManyAttentions) {
  LongModel model(
      "w: parameter [2]\nx: data [b, 1, 3, 2]\nc: constant [3, 3]\nh [b, 1, 3, 2] = mul.Tensor x w\n");
  const std::vector<Extent> square{{3}, {3}}, heads{{1, true}, {1}, {3}, {2}};
  ValueId mask = model.at("c"), value = model.at("h");
  for (int i = 0; i < kMany / 4; ++i) mask = model.add("neg", {mask}, square);
  for (int i = 0; i < kMany / 4; ++i) {
    mask = model.add("neg", {mask}, square);
    value =
        model.add("scaled_dot_product_attention", {value, value, value, mask, 0.0, false, {}, false}, heads);
  }
  model.sum(value);
  EXPECT_EQ(model.lowered().steps.size(), kMany / 4 + 2u);
}

// What the host computes for a batch.
TEST_F(LongGraphs, ChainOfOperationsOnData) {
  LongModel model(kText);
  ValueId value = model.at("x");
  for (int i = 0; i < kMany; ++i) value = model.add("neg", {value}, kRow);
  model.sum(model.add("mul.Tensor", {model.at("h"), value}, kRow));
  const LoweredGraph lowered = model.lowered();
  const Preparation preparation(lowered.graph, lowered.prepared, DType::F64,
                                [](const Input&) { return Array(); });
  std::vector<Array> data;
  for (const Input& input : preparation.data())
    data.push_back(zero_array(lowered.graph.at(input.value).type,
                              lowered.graph.at(input.value).dims.size() == 2 ? std::vector<int64_t>{2, 6}
                                                                             : std::vector<int64_t>{2}));
  EXPECT_EQ(preparation.run(data, 2).size(), lowered.prepared.size());
}

}  // namespace
}  // namespace trifold::graph::lowering
