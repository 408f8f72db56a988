// Losses and gradients of lowered graphs against PyTorch's in f64 (tools/reference/own_models_gradients.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "graph/lower/constants.h"
#include "graph/lower/graph_block.h"
#include "graph/preparation.h"
#include "graph/pt2/read_array.h"
#include "graph/pt2/read_pt2.h"
#include "support/files.h"

namespace trifold::graph {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 7;
constexpr int64_t kFirstSample = 5;

std::string data(const std::string& name) {
  return std::string(TRIFOLD_TEST_DATA) + "/data/own_models/gradients/" + name;
}

// The parameters of a model and their gradients, in the memory of this object.
class Weights final : public ParamSource, public GradSink {
 public:
  Weights(const ParamList& params, DType dtype) : params_(params), dtype_(dtype) {
    for (int i = 0; i < params.size(); ++i) {
      const auto bytes = static_cast<size_t>(params[{i}].shard.local.extent.elements()) * size_of(DType::F64);
      values_.emplace_back(bytes);
      grads_.emplace_back(bytes);
    }
    begun_.assign(values_.size(), false);
  }
  Tensor weight(ParamId id) const override {
    const ParamSpec& spec = params_[id];
    return memory(values_, spec.tied_to.value_or(id)).reshape(spec.shard.local.extent);
  }
  Tensor grad(ParamId id) const override { return memory(grads_, id); }
  bool begun(ParamId id) const override { return begun_[static_cast<size_t>(id.index)]; }
  void set_begun(ParamId id, bool begun) override { begun_[static_cast<size_t>(id.index)] = begun; }
  void reduce(int, Stream&) override {}
  void reduce_tied(Stream&) override {}

 private:
  Tensor memory(const std::vector<Buffer>& buffers, ParamId id) const {
    return buffers[static_cast<size_t>(id.index)].tensor(dtype_, params_[id].shard.local.extent);
  }
  const ParamList& params_;
  DType dtype_;
  std::vector<Buffer> values_, grads_;
  std::vector<bool> begun_;
};

void remove_dropout(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.name == "dropout") node.arguments[1] = 0.0;
    if (node.name == "scaled_dot_product_attention") node.arguments[4] = 0.0;
  }
}

// A model of the test data, lowered to blocks on one rank.
class OwnModel {
 public:
  OwnModel(const std::string& name, DType dtype, bool drops)
      : archive_(data(name + ".pt2")), tensors_(archive_.tensors()), dtype_(dtype) {
    graph_ = read_pt2(archive_.model_text(), archive_.model_where(), tensors_).graph;
    if (!drops) remove_dropout(graph_);
    const auto stored = [&](const Input& input) { return read_array(archive_, tensors_, input.name); };
    Constants constants(graph_, stored);
    lowered_ = std::make_shared<const LoweredGraph>(lower(graph_, [&](ValueId id) { return constants(id); }));
    preparation_ = std::make_unique<Preparation>(lowered_->graph, lowered_->prepared, dtype, stored);
    ModelParameters parameters(*lowered_, {});
    for (size_t i = 0; i < lowered_->blocks.size(); ++i) {
      BlockBuilder builder(params_, reports_, mesh_, static_cast<int>(i), kSeed);
      blocks_.push_back(std::make_unique<GraphBlock>(builder, lowered_, i, parameters));
      slots_.push_back(builder.slots());
    }
    weights_ = std::make_unique<Weights>(params_, dtype);
    for (int i = 0; i < params_.size(); ++i) {
      if (params_[{i}].tied_to) continue;
      const Array array = converted(read_array(archive_, tensors_, params_[{i}].shard.name),
                                    dtype == DType::F64 ? ElementType::F64 : ElementType::F32);
      std::copy(array.bytes.begin(), array.bytes.end(), static_cast<std::byte*>(weights_->weight({i}).data));
    }
  }

  const std::vector<Input>& inputs() const { return preparation_->data(); }
  size_t blocks() const { return blocks_.size(); }
  const LoweredGraph& lowered() const { return *lowered_; }

  struct Result {
    double loss = 0, count = 0;
    std::map<std::string, std::vector<double>> gradients;  // by parameter, summed over its uses
    std::vector<int64_t> kept;                             // bytes that forward of each block keeps
  };

  Result run(const std::map<std::string, Array>& arrays, int64_t samples, bool separate) {
    std::vector<Array> given;
    for (const Input& input : preparation_->data()) given.push_back(arrays.at(input.name));
    Buffer bytes(static_cast<size_t>(preparation_->layout().bytes(samples)));
    preparation_->write(given, samples, {bytes.data(), bytes.bytes()});
    Batch batch = batch_without_memory(samples, 1);
    batch.arrays = bytes.tensor(DType::U8, {static_cast<int64_t>(bytes.bytes())});
    batch.first_sample = kFirstSample;
    ThreadPool pool(2);
    Stream stream(Stream::Mode::Inline, pool);
    Arena keep(size_t{1} << 26), flow(size_t{1} << 26), scratch(size_t{1} << 26);
    double sums[2] = {0, 0};
    Run run{stream,
            stream,
            cpu_ops(),
            mesh_,
            *weights_,
            weights_.get(),
            &keep,
            &flow,
            scratch,
            &batch,
            dtype_,
            true,
            kSeed,
            1.0,
            {&sums[0], DType::F64, {1}},
            {&sums[1], DType::F64, {1}}};
    std::vector<Saved> saved;
    for (const int slots : slots_) saved.emplace_back(slots);
    Tensor x;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const auto before = static_cast<int64_t>(keep.used());
      x = blocks_[i]->forward(run, x, saved[i]);
      kept.push_back(static_cast<int64_t>(keep.used()) - before);
    }
    Tensor dy;
    for (size_t i = blocks_.size(); i-- > 0;)
      dy = separate ? blocks_[i]->backward_input(run, dy, saved[i]) : blocks_[i]->backward(run, dy, saved[i]);
    if (separate)
      for (size_t i = blocks_.size(); i-- > 0;) blocks_[i]->backward_weight(run, saved[i]);
    Result result{sums[0], sums[1], {}, kept};
    for (int i = 0; i < params_.size(); ++i) {
      const ParamId id{i};
      std::vector<double>& sum = result.gradients[params_[params_[id].tied_to.value_or(id)].shard.name];
      const Tensor gradient = weights_->grad(id);
      sum.resize(static_cast<size_t>(gradient.elements()));
      if (!weights_->begun(id)) continue;
      for (size_t e = 0; e < sum.size(); ++e)
        sum[e] += dtype_ == DType::F64 ? gradient.as<double>()[e] : gradient.as<float>()[e];
    }
    return result;
  }

 private:
  Archive archive_;
  std::vector<StoredTensor> tensors_;
  DType dtype_;
  Graph graph_;
  Mesh mesh_{{}, {}};
  ParamList params_;
  ReportList reports_;
  std::shared_ptr<const LoweredGraph> lowered_;
  std::unique_ptr<Preparation> preparation_;
  std::vector<std::unique_ptr<GraphBlock>> blocks_;
  std::vector<int> slots_;
  std::unique_ptr<Weights> weights_;
};

// The micro-batch of the test data, by the names of the graph's inputs.
std::map<std::string, Array> arrays_of(const json& numbers, const std::vector<Input>& inputs,
                                       const Graph& graph) {
  std::map<std::string, Array> arrays;
  for (const Input& input : inputs) {
    const json& given = numbers.at("input." + input.name);
    Array array = make_array(graph.at(input.value).type, given.at("dims").get<std::vector<int64_t>>());
    const auto values = given.at("values").get<std::vector<double>>();
    for (size_t i = 0; i < values.size(); ++i)
      if (array.type == ElementType::I64)
        array.as<int64_t>()[i] = static_cast<int64_t>(values[i]);
      else
        array.as<double>()[i] = values[i];
    arrays.emplace(input.name, std::move(array));
  }
  return arrays;
}

class GraphGradients : public testing::TestWithParam<std::tuple<const char*, const char*, DType>> {};

TEST_P(GraphGradients, AreThoseOfPyTorch) {
  const auto& [name, kind, dtype] = GetParam();
  const json expected = json::parse(std::ifstream(data(std::string(name) + ".json")));
  OwnModel model(name, dtype, std::string(kind) == "dropped");
  const auto arrays = arrays_of(expected, model.inputs(), model.lowered().graph);
  const int64_t samples = arrays.begin()->second.dims[0];
  const OwnModel::Result result = model.run(arrays, samples, false);
  const double tolerance = dtype == DType::F64 ? 1e-10 : 1e-5;
  const std::string prefix = std::string(kind) + ".";
  const double loss = expected.at(prefix + "loss");
  EXPECT_NEAR(result.loss, loss, tolerance * std::abs(loss));
  EXPECT_EQ(result.count, expected.at(prefix + "count").get<double>());
  double scale = 0;
  for (const auto& [key, value] : expected.items())
    if (key.starts_with(prefix + "grad.")) scale = std::max(scale, value[2].get<double>());
  for (const auto& [parameter, gradient] : result.gradients) {
    const json& numbers = expected.at(prefix + "grad." + parameter);
    double one = 0, other = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      one += gradient[i] * std::cos(static_cast<double>(i));
      other += gradient[i] * std::cos(2.0 * static_cast<double>(i) + 1);
    }
    EXPECT_NEAR(one, numbers[0].get<double>(), tolerance * scale) << parameter;
    EXPECT_NEAR(other, numbers[1].get<double>(), tolerance * scale) << parameter;
  }
}

// A layer of GPT-2 keeps 10 rows of its width a token: queries, keys, values, the result of attention, the sum after it,
// four of the input of GELU, and its output, which is the input of the next block. Outputs of norms (2 rows) and of
// GELU (4) are computed again. Statistics are less than a row.
TEST(GraphBlock, RepeatsCheapStepsRatherThanKeepTheirOutputs) {
  const json expected = json::parse(std::ifstream(data("gpt2.json")));
  OwnModel model("gpt2", DType::F64, false);
  const auto arrays = arrays_of(expected, model.inputs(), model.lowered().graph);
  const std::vector<int64_t>& ids = arrays.at("input_ids").dims;
  const OwnModel::Result result = model.run(arrays, ids[0], false);
  const int64_t row = ids[0] * ids[1] * 16 * 8;
  ASSERT_GE(result.kept.size(), 3U);
  EXPECT_GE(result.kept[1], 10 * row);
  EXPECT_LT(result.kept[1], 11 * row);
}

INSTANTIATE_TEST_SUITE_P(Models, GraphGradients,
                         testing::Combine(testing::Values("gpt2", "bert", "roberta", "distilbert", "t5",
                                                          "llama", "whisper", "mixer", "mlp"),
                                          testing::Values("plain", "dropped"),
                                          testing::Values(DType::F64, DType::F32)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) + "_" +
                                  std::string(name_of(std::get<2>(info.param)));
                         });

}  // namespace
}  // namespace trifold::graph
