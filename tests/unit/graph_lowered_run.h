// Runs a lowered graph of a test (graph_small_model.h) in f64, on one rank: losses, gradients of parameters, and gradients
// of what crosses from block to block. Memory that nothing has written holds NaN, so that reading it is seen.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "graph/lower/constants.h"
#include "graph/lower/graph_block.h"
#include "graph/preparation.h"
#include "graph_small_model.h"
#include "nn/recompute.h"

namespace trifold::graph::lowering {

constexpr double kLossScale = 0.25;
constexpr int64_t kFirstSample = 5;

// How the blocks of a graph are run backward.
enum class Backward : uint8_t {
  Joint,      // both parts of a block at once; two arenas take turns with the gradients of activations
  InScratch,  // the same, with one arena for these and for temporaries; not for recomputation
  Apart,      // the parts for parameters after those of all blocks for inputs
};

// Parameters in f64. Gradients are NaN until they are written.
class SmallWeights final : public ParamSource, public GradSink {
 public:
  explicit SmallWeights(const ParamList& params) : params_(params) {
    for (int i = 0; i < params.size(); ++i) {
      const auto count = static_cast<size_t>(params[{i}].shard.local.extent.elements());
      values.emplace_back(count);
      grads.emplace_back(count, std::numeric_limits<double>::quiet_NaN());
    }
    begun_.assign(values.size(), false);
  }
  Tensor weight(ParamId id) const override { return memory(values, params_[id].tied_to.value_or(id), id); }
  Tensor grad(ParamId id) const override { return memory(grads, id, id); }
  bool begun(ParamId id) const override { return begun_[static_cast<size_t>(id.index)]; }
  void set_begun(ParamId id, bool begun) override { begun_[static_cast<size_t>(id.index)] = begun; }
  void reduce(int, Stream&) override {}
  void reduce_tied(Stream&) override {}

  std::vector<bool> all_begun() const { return begun_; }
  void begin_step() {
    begun_.assign(values.size(), false);
    for (auto& grad : grads) std::fill(grad.begin(), grad.end(), std::numeric_limits<double>::quiet_NaN());
  }

  mutable std::vector<std::vector<double>> values, grads;

 private:
  Tensor memory(std::vector<std::vector<double>>& all, ParamId id, ParamId shape) const {
    return {all[static_cast<size_t>(id.index)].data(), DType::F64, params_[shape].shard.local.extent};
  }
  const ParamList& params_;
  std::vector<bool> begun_;
};

class LoweredRun {
 public:
  struct Gradients {
    double loss = 0;
    std::map<std::string, std::vector<double>>
        parameters;                               // summed over the uses of each; frozen ones have none
    std::vector<std::vector<double>> boundaries;  // after each block but the last, whole
  };

  // `each`: every node is a block of its own, or else all are one. `repeats`: blocks but the last are recomputed.
  LoweredRun(SmallModel& model, int64_t batch, bool each, bool repeats = false) : batch_(batch) {
    Graph graph = model.graph;
    for (size_t i = 0; each && i < graph.nodes.size(); ++i)
      graph.nodes[i].origin.module = "m." + std::to_string(i);
    const auto stored = [&](const Input& input) { return model.elements(input, batch); };
    Constants constants(graph, stored);
    lowered_ = std::make_shared<const LoweredGraph>(lower(graph, [&](ValueId id) { return constants(id); }));
    ModelParameters parameters(*lowered_, {});
    for (size_t i = 0; i < lowered_->blocks.size(); ++i) {
      BlockBuilder builder(params_, reports_, mesh_, static_cast<int>(i), 7);
      std::unique_ptr<Layer> layer = std::make_unique<GraphBlock>(builder, lowered_, i, parameters);
      if (repeats && i + 1 < lowered_->blocks.size())
        layer = std::make_unique<Recompute>(builder, std::move(layer));
      blocks_.push_back(std::move(layer));
      slots_.push_back(builder.slots());
    }
    weights_ = std::make_unique<SmallWeights>(params_);
    for (const Input& input : lowered_->graph.inputs)
      for (int i = 0; i < params_.size(); ++i) {
        if (params_[{i}].tied_to || params_[{i}].shard.name != input.name) continue;
        const Array& array = model.elements(input, batch);
        std::copy(array.as<double>(), array.as<double>() + array.elements(),
                  weights_->values[static_cast<size_t>(i)].begin());
        if (input.requires_grad) trained_.emplace(input.name, i);
      }
    const Preparation preparation(lowered_->graph, lowered_->prepared, DType::F64, stored);
    std::vector<Array> given;
    for (const Input& input : preparation.data()) given.push_back(model.elements(input, batch));
    arrays_.resize(static_cast<size_t>(preparation.layout().bytes(batch)) + 64);
    preparation.write(given, batch, {reinterpret_cast<std::byte*>(arrays_.data()), arrays_.size()});
  }

  const LoweredGraph& lowered() const { return *lowered_; }
  size_t blocks() const { return blocks_.size(); }
  const std::map<std::string, int>& trained() const { return trained_; }
  std::vector<double>& values(int parameter) { return weights_->values[static_cast<size_t>(parameter)]; }

  // The loss; with `boundaries`, these are what enters the blocks.
  double loss(std::vector<std::vector<double>>* boundaries = nullptr) { return loss_from(0, {}, boundaries); }
  // The loss of blocks from `first` on, for what enters it.
  double loss_from(size_t first, std::vector<double> entering,
                   std::vector<std::vector<double>>* boundaries = nullptr) {
    Memory memory(*this, nullptr, &memory_.keep, &memory_.flow);
    Tensor x;
    if (first > 0) x = {entering.data(), DType::F64, {std::ssize(entering)}};
    for (size_t i = first; i < blocks_.size(); ++i) {
      Saved saved(slots_[i]);
      x = blocks_[i]->forward(memory.run, x, saved);
      if (boundaries != nullptr && i + 1 < blocks_.size()) boundaries->push_back(elements_of(x));
    }
    return memory.sums[0];
  }

  Gradients gradients(Backward kind) {
    const bool apart = kind == Backward::Apart;
    weights_->begin_step();
    Memory memory(*this, weights_.get(), &memory_.keep,
                  kind == Backward::InScratch ? &memory_.scratch : &memory_.flow);
    Run& run = memory.run;
    std::vector<Saved> saved;
    for (const int slots : slots_) saved.emplace_back(slots);
    Tensor x;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const std::vector<bool> before = weights_->all_begun();
      x = blocks_[i]->forward(run, x, saved[i]);
      EXPECT_TRUE(blocks_[i]->adds_in_forward() || before == weights_->all_begun());
    }
    Gradients result;
    result.boundaries.resize(blocks_.size() - 1);
    Tensor dy;
    for (size_t i = blocks_.size(); i-- > 0;) {
      if (i + 1 < blocks_.size()) result.boundaries[i] = elements_of(dy);
      const std::vector<bool> before = weights_->all_begun();
      if (kind == Backward::Joint) run.flow = memory_.next_flow();
      dy = apart ? blocks_[i]->backward_input(run, dy, saved[i]) : blocks_[i]->backward(run, dy, saved[i]);
      EXPECT_TRUE(!apart || blocks_[i]->adds_in_backward_input() || before == weights_->all_begun());
    }
    if (apart)
      for (size_t i = blocks_.size(); i-- > 0;) blocks_[i]->backward_weight(run, saved[i]);
    result.loss = memory.sums[0];
    for (int i = 0; i < params_.size(); ++i) add_gradient(i, result);
    return result;
  }

  // The part of a boundary that has a gradient: [begin, end) of elements.
  std::vector<std::pair<size_t, size_t>> trained_parts(size_t block) const {
    std::vector<std::pair<size_t, size_t>> parts;
    int64_t offset = 0;
    for (const int index : lowered_->blocks[block].leaving) {
      const Base& base = lowered_->bases[static_cast<size_t>(index)];
      const Size count = base.elements();
      if (base.needs_gradient) parts.emplace_back(offset, offset + count.at(batch_));
      const auto aligned = [](int64_t n) {
        return (n + kBoundaryAlignment - 1) / kBoundaryAlignment * kBoundaryAlignment;
      };
      offset += aligned(count.fixed) + aligned(count.per_sample) * batch_;
    }
    return parts;
  }

 private:
  static std::vector<double> elements_of(Tensor tensor) {
    return {tensor.as<double>(), tensor.as<double>() + tensor.elements()};
  }

  void add_gradient(int parameter, Gradients& result) const {
    const ParamId id{parameter};
    const std::string& name = params_[params_[id].tied_to.value_or(id)].shard.name;
    if (!trained_.contains(name)) {
      EXPECT_FALSE(weights_->begun(id)) << "the frozen parameter " << name << " has a gradient";
      return;
    }
    const std::vector<double>& gradient = weights_->grads[static_cast<size_t>(parameter)];
    std::vector<double>& sum = result.parameters[name];
    sum.resize(gradient.size());
    for (size_t i = 0; weights_->begun(id) && i < sum.size(); ++i) sum[i] += gradient[i];
  }

  struct Arenas {
    Arena keep{size_t{1} << 17}, flow{size_t{1} << 17}, other_flow{size_t{1} << 17}, scratch{size_t{1} << 17};
    void reset() {
      for (Arena* arena : {&keep, &flow, &other_flow, &scratch}) fill(*arena);
    }
    // Of the two arenas of flows the one that does not hold the last gradient.
    Arena* next_flow() {
      turn = !turn;
      Arena& next = turn ? other_flow : flow;
      fill(next);
      return &next;
    }
    static void fill(Arena& arena) {
      arena.reset();
      const Tensor all = arena.take(DType::U8, {static_cast<int64_t>(arena.capacity() - 64)});
      std::memset(all.data, 0xFF, static_cast<size_t>(all.elements()));  // NaN
      arena.reset();
    }
    bool turn = false;
  };

  // What one run needs.
  struct Memory {
    Memory(LoweredRun& of, GradSink* grads, Arena* keep, Arena* flow)
        : batch(batch_without_memory(of.batch_, 1)),
          stream(Stream::Mode::Inline, of.pool_),
          run{stream,
              stream,
              cpu_ops(),
              of.mesh_,
              *of.weights_,
              grads,
              keep,
              flow,
              of.memory_.scratch,
              &batch,
              DType::F64,
              true,
              7,
              kLossScale,
              {&sums[0], DType::F64, {1}},
              {&sums[1], DType::F64, {1}}} {
      of.memory_.reset();
      batch.arrays = {of.arrays_.data(), DType::U8, {std::ssize(of.arrays_)}};
      batch.first_sample = kFirstSample;
    }
    double sums[2] = {0, 0};
    Batch batch;
    Stream stream;
    Run run;
  };

  int64_t batch_;
  Mesh mesh_{{}, {}};
  ParamList params_;
  ReportList reports_;
  std::shared_ptr<const LoweredGraph> lowered_;
  std::vector<std::unique_ptr<Layer>> blocks_;
  std::vector<int> slots_;
  std::unique_ptr<SmallWeights> weights_;
  std::map<std::string, int> trained_;  // by name, the first use of each trained parameter
  std::vector<unsigned char> arrays_;
  ThreadPool pool_{1};
  Arenas memory_;
};

}  // namespace trifold::graph::lowering
