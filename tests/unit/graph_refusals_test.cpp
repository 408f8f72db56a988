// Graphs that cannot be trained, and the reasons that are given.
#include <gtest/gtest.h>

#include "graph/lower/lowered.h"
#include "graph_small_model.h"
#include "support/files.h"

namespace trifold::graph::lowering {
namespace {

const std::string kLinear =
    "p: parameter [3]\n"
    "x: data [b, 3]\n"
    "h [b, 3] = mul.Tensor x p\n"
    "w: parameter [4, 3]\n";

std::string attention(const std::string& queries, const std::string& keys, const std::string& values,
                      const std::string& call, const std::string& result) {
  return "p: parameter []\nxq: data " + queries + "\nxk: data " + keys + "\nv: data " + values + "\nq " +
         queries + " = mul.Tensor xq p\nk " + keys + " = mul.Tensor xk p\nm: data bool [3, 3]\ny " + result +
         " = scaled_dot_product_attention q k v " + call + "\nloss y\n";
}

LoweredGraph lowered(const std::string& text) {
  const SmallModel model(text);
  return lower(model.graph, [](ValueId) { return std::optional<Array>(); });
}

void expect_refused(const std::string& text, const std::string& reason) {
  test::expect_has(test::error_of([&] { lowered(text); }), reason);
}

TEST(GraphRefusals, NameTheNodeAndItsLine) {
  const std::string message =
      test::error_of([] { lowered(kLinear + "c [b, 3] = cumsum h 1\nd [b, 3] = diff c\nloss c\n"); });
  EXPECT_EQ(message,
            "the model cannot be trained, for 1 reason:\n"
            "  node 'c' (cumsum), model.py:2: it has no gradient here");
}

TEST(GraphRefusals, WeightsThatAreNoWholeParameters) {
  expect_refused(
      kLinear + "c: parameter [6]\ns [4] = slice.Tensor c 0 1 5\ny [b, 4] = linear h w s\nloss y\n",
      "node 'y' (linear), model.py:3: its weight is a part of a parameter");
  expect_refused(kLinear + "c: parameter [4]\ns [4] = exp c\ny [b, 4] = linear h w s\nloss y\n",
                 "its weight is computed from parameters");
  expect_refused(
      kLinear + "g: parameter [2, 3]\ns [3] = select.int g 0 1\ny [b, 3] = layer_norm h [3] s\nloss y\n",
      "its weight is a part of a parameter");
  expect_refused(
      "e: parameter [5, 3]\ni: data i64 [b] below 3\ns [3, 3] = slice.Tensor e 0 1 4\n"
      "y [b, 3] = embedding s i\nloss y\n",
      "its weight is a part of a parameter");
  expect_refused(
      "e: parameter [5, 3]\ni: data i64 [b] below 3\ns [5, 3] = exp e\ny [b, 3] = embedding s i\nloss y\n",
      "its weight is computed from parameters");
}

TEST(GraphRefusals, CausalAttentionOfOtherShapes) {
  const std::string four = "[b, 2, 3, 4]", longer = "[b, 2, 5, 4]";
  expect_refused(attention(four, four, four, "m 0.0 true", four), "it is causal and has a mask");
  expect_refused(attention(four, longer, longer, "- 0.0 true", four),
                 "it is causal with queries [batch, 2, 3, 4], keys [batch, 2, 5, 4]");
  expect_refused(attention(four, four, "[b, 2, 3, 6]", "- 0.0 true", "[b, 2, 3, 6]"),
                 "which need equal positions and widths");
  expect_refused(attention("[b, 3, 4]", "[b, 3, 4]", "[b, 3, 4]", "", "[b, 3, 4]"),
                 "not [samples, heads, positions, width]");
  expect_refused(attention("[b, 3, 3, 4]", four, four, "", "[b, 3, 3, 4]"), "do not fit its keys");
}

TEST(GraphRefusals, ShapesThatTheFileHasWrong) {
  expect_refused(kLinear + "t [b, 3] = t h\ny [] = sum t\nloss y\n",
                 "its result is not of the shape [batch, 3] that the file has for it");
  expect_refused(kLinear +
                     "e: parameter [0, 3]\nl: data i64 [b] below 1\ns [b, 0] = linear h e\n"
                     "y [] = cross_entropy_loss s l\nloss y\n",
                 "its classes are the");
}

TEST(GraphRefusals, ShapesThatRulesDoNotHave) {
  expect_refused(kLinear + "y [b, 3] = softmax.int h 0\nloss y\n", "it is over axis 0 of [batch, 3]");
  expect_refused(kLinear + "y [b, 3] = layer_norm h [1, 3]\nloss y\n", "only the last axis is possible");
  expect_refused(kLinear + "y [2b, 3] = cat {h, h} 0\nloss y\n", "along the axis of the samples");
  expect_refused(kLinear + "t [3, b] = t h\ny [3, 2, b] = stack {t, t} 1\nloss y\n",
                 "has the samples after axis 1");
  expect_refused(kLinear + "v: parameter [3]\ny [b] = matmul h v\nloss y\n",
                 "a factor has the shape [3], and has to have two axes");
  expect_refused(kLinear + "c: parameter [4]\nt [3, 4] = t w\ny [b, 4] = addmm c h t 0.5\nloss y\n",
                 "its factors alpha and beta have to be 1");
  expect_refused("e: parameter [5, 2, 3]\ni: data i64 [b] below 3\ny [b, 2, 3] = embedding e i\nloss y\n",
                 "its table has the shape [5, 2, 3]");
  expect_refused("e: parameter [5, 3]\ni: data i64 [b] below 3\ny [b, 3] = embedding e i -1 true\nloss y\n",
                 "its gradients are scaled by frequency");
  expect_refused(kLinear +
                     "u [b, 1, 1, 1, 1, 1, 1, 1, 3] = view h [b, 1, 1, 1, 1, 1, 1, 1, 3]\n"
                     "y [b, 1, 1, 1, 1, 1, 1, 1, 3] = exp u\nloss y\n",
                 "more than");
  expect_refused(kLinear + "t [3, b] = t h\ny [3, b] = dropout t 0.1 true\nloss y\n", "must be the first");
}

TEST(GraphRefusals, ArgumentsThatAreNoTensors) {
  expect_refused(kLinear + "y [b, 3] = maximum h 2\nloss y\n", "its argument 'other' is no tensor");
  expect_refused(kLinear + "y [b, 4] = linear h -\nloss y\n", "its argument 'weight' is no tensor");
  expect_refused(
      kLinear + "i i64 [b, 3] = to.dtype h i64\ne: parameter [5, 3]\ny [b, 3, 3] = embedding e i\nloss y\n",
      "node 'i' (to.dtype)");
}

TEST(GraphRefusals, LossesThatAreNone) {
  expect_refused(kLinear, "the model has no output");
  expect_refused("x: data []\nloss x\n", "no trained parameter has an effect on it");
  expect_refused("f: frozen []\nx: data []\ny [] = mul.Tensor f x\nloss y\n",
                 "no trained parameter has an effect on it");
  expect_refused(kLinear + "s [] = sum h\nloss s\ncount s\n", "does not depend on parameters");
  SmallModel model(kLinear + "s [] = sum h\nloss s\n");
  model.graph.outputs[0].value = model.at("h");
  test::expect_has(
      test::error_of([&] { lower(model.graph, [](ValueId) { return std::optional<Array>(); }); }),
      "is f64 [batch, 3]: it has to be the loss");
}

// Updates of buffers may come before what forward returns.
TEST(GraphRefusals, NotOfUpdatedBuffersBeforeTheLoss) {
  SmallModel model(kLinear + "c: buffer [3]\nn [3] = exp c\nk: data []\ns [] = sum h\nloss s\ncount k\n");
  model.graph.outputs.insert(model.graph.outputs.begin(), {model.at("n"), "c"});
  const LoweredGraph graph = lower(model.graph, [](ValueId) { return std::optional<Array>(); });
  EXPECT_EQ(graph.base(graph.loss).name, "s");
  EXPECT_EQ(graph.base(graph.count).name, "k");
}

}  // namespace
}  // namespace trifold::graph::lowering
