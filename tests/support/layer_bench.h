// LayerBench: a single layer, in f64, sharded over the ranks of a tensor axis, with all objects that a Run needs, for
// tests of the layer's mathematics. Tests use global tensors; the bench shards and gathers them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <vector>

#include "data/read_ahead.h"
#include "data_parallel/gradient_buffer.h"
#include "mesh/rect.h"
#include "models/prediction_module.h"
#include "nn/layer.h"
#include "zero/param_store.h"
#include "zero/quantized_segment.h"

namespace trifold::test {

// An activation as a global tensor, and its sharding.
struct Placed {
  // None: there is no tensor. Stream: sharded as between regions. Columns: last dim sharded over the tensor axis.
  enum class Cut { None, Stream, Columns };
  Cut cut = Cut::None;
  Shape global;

  // The box on one rank. The first dim of a Stream is sharded only under sequence parallelism.
  Rect local(const Mesh& mesh, bool sequence_parallel) const {
    const int part = mesh.coord(Axis::Tp);
    const int parts = mesh.size(Axis::Tp);
    if (cut == Cut::Columns) return even_part(global, global.rank() - 1, part, parts);
    return sequence_parallel ? even_part(global, 0, part, parts) : Rect::whole(global);
  }
};

class LayerBench {
 public:
  using Make = std::function<std::unique_ptr<Layer>(BlockBuilder&)>;
  using Values = std::vector<double>;  // a whole tensor

  // Collective over `world`, the ranks of the tensor axis: `sharing` ranks share the experts, and `parts` ranks shard
  // each expert. Random token ids of the batch are below `vocab`.
  LayerBench(Communicator& world, bool sequence_parallel, const Make& make, const Placed& input,
             const Placed& output, int64_t samples, int64_t seq_length, int64_t vocab, int sharing = 1,
             int parts = 1)
      : mesh_(world, {{Axis::Tp, world.size()}, {Axis::Etp, parts}, {Axis::Ep, sharing}}),
        sequence_parallel_(sequence_parallel),
        input_(input),
        output_(output),
        pool_(1),
        side_pool_(1),
        stream_(Stream::Mode::Inline, pool_),
        side_(Stream::Mode::Worker, side_pool_),
        batch_(batch_without_memory(samples, seq_length, kMostLaterLabels)) {
    BlockBuilder builder(params_, reports_, mesh_, 0, 99, sequence_parallel);
    layer_ = make(builder);
    slots_ = builder.slots();
    groups_ = std::make_unique<DataGroups>(mesh_, 1, params_);
    layout_ = std::make_unique<FlatLayout>(params_, std::vector<std::vector<int>>{{0}}, 1, mesh_.sizes(), 1);
    weights_ =
        std::make_unique<ParamStore>(*layout_, *groups_, cpu_ops(), DType::F64, ParamStore::Options{}, side_);
    grads_ = std::make_unique<GradientBuffer>(*layout_, GradLayout::whole(*layout_), *groups_, cpu_ops(),
                                              DType::F64, GradientBuffer::Options{}, side_);
    randomise(vocab);
  }

  const ParamList& params() const { return params_; }
  const Values& weight(ParamId id) const { return values_[static_cast<size_t>(id.index)]; }
  void set_weight(ParamId id, size_t element, double value) {
    Values& whole = values_[static_cast<size_t>(id.index)];
    whole[element] = value;
    if (params_[id].quantized) return quantize(id, whole);
    cut(whole, params_[id].shard.global, params_[id].shard.local, weights_->weight(id).as<double>());
  }

  // Runs forward and returns the scalar whose gradient is checked: the layer's own loss plus the sum of its
  // outputs weighted by `dy`. The same on all ranks.
  double forward(const Values& x, const Values& dy) {
    saved_ = std::make_unique<Saved>(slots_);
    keep_.reset();
    Run run = make_run();
    std::fill(std::begin(losses_), std::end(losses_), 0.0);
    grads_->restart(stream_);  // the forward of a loss writes them
    const Tensor y = layer_->forward(run, local(x, input_, x_here_), *saved_);
    EXPECT_EQ(run.scratch.used(), 0U) << "temporaries were left";
    EXPECT_EQ(any_begun(), layer_->adds_in_forward());
    for (int k = 1; k <= kMostLaterLabels; ++k) {
      const auto term = reports_.loss_terms.find(PredictionReports::loss(k));
      const auto scale = reports_.batch_values.find(PredictionReports::scale(k));
      if (term) losses_[2 + term->index] *= run.batch_value(*scale);
    }
    for (const std::string& shown : reports_.shown_terms)  // they are no part of the loss
      losses_[2 + reports_.loss_terms.find(shown)->index] = 0;
    double sum = first() ? std::accumulate(losses_ + 2, std::end(losses_), losses_[0]) * run.loss_scale : 0;
    if (output_.cut != Placed::Cut::None && counts(output_)) {
      const Tensor weights = local(dy, output_, dy_here_);
      EXPECT_EQ(y.elements(), weights.elements());
      for (int64_t i = 0; i < y.elements(); ++i) sum += y.as<double>()[i] * weights.as<double>()[i];
    }
    return add_over_ranks(Values{sum})[0];
  }

  // Backward of the last forward; call it once per forward. Gradients of parameters are assigned and then summed over
  // the ranks. `split` runs the two halves separately.
  Values backward(const Values& dy, bool split) {
    flow_.reset();
    Run run = make_run();
    const Tensor given = local(dy, output_, dy_here_);
    Tensor dx;
    if (split) {
      dx = layer_->backward_input(run, given, *saved_);
      if (!layer_->adds_in_forward()) {
        EXPECT_EQ(any_begun(), layer_->adds_in_backward_input());
      }
      layer_->backward_weight(run, *saved_);
    } else {
      dx = layer_->backward(run, given, *saved_);
    }
    EXPECT_EQ(run.scratch.used(), 0U) << "temporaries were left";
    grads_->reduce(0, stream_);
    grads_->finish(stream_);
    if (input_.cut == Placed::Cut::None) return {};
    return assemble(dx, input_.global, input_.local(mesh_, sequence_parallel_), counts(input_));
  }

  // The gradient of a whole parameter.
  Values grad(ParamId id) {
    const ShardSpec& shard = params_[id].shard;
    return assemble(grads_->grad(id), shard.global, shard.local, counts_here(shard, mesh_.coords()));
  }

  static Values random(int64_t count, const char* name) {
    Values values(static_cast<size_t>(count));
    const PhiloxKey key = philox_key(5, name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = philox_normal(key, i);
    return values;
  }

 private:
  void quantize(ParamId id, const Values& whole) {
    const Shape& global = params_[id].shard.global;
    fill_quantized(
        *layout_, {id, 0, params_[id].stored_length()}, weights_->weight(id),
        [&](const Rect& box, Tensor values) {
          Values here(static_cast<size_t>(box.elements()));
          cut(whole, global, box, here.data());
          std::copy(here.begin(), here.end(), values.as<float>());
        },
        cpu_ops(), stream_);
  }

  // Whether anything was added to the gradient of a parameter.
  bool any_begun() const {
    for (int i = 0; i < params_.size(); ++i)
      if (grads_->begun({i})) return true;
    return false;
  }

  bool first() const { return mesh_.coord(Axis::Tp) == 0; }
  // Whether this rank's part of the tensor enters sums over the ranks.
  bool counts(const Placed& tensor) const {
    return first() || tensor.cut == Placed::Cut::Columns || sequence_parallel_;
  }
  static void cut(const Values& whole, const Shape& global, const Rect& here, double* to) {
    copy_rect(to, here, whole.data(), Rect::whole(global), here, sizeof(double));
  }
  Tensor local(const Values& whole, const Placed& tensor, Values& memory) const {
    if (tensor.cut == Placed::Cut::None) return {};
    const Rect here = tensor.local(mesh_, sequence_parallel_);
    memory.resize(static_cast<size_t>(here.elements()));
    cut(whole, tensor.global, here, memory.data());
    // Layers receive matrices, in which groups of columns are adjacent.
    return {memory.data(), DType::F64, {here.extent[0], here.elements() / here.extent[0]}};
  }
  Values add_over_ranks(Values values) {
    const Tensor all{values.data(), DType::F64, {static_cast<int64_t>(values.size())}};
    mesh_.world().all_reduce(all, Reduce::Sum, stream_);
    return values;
  }
  // Gathers a tensor of which every rank has a box; copies must be equal.
  Values assemble(Tensor t, const Shape& global, const Rect& here, bool counted) {
    EXPECT_EQ(t.elements(), here.elements());
    Values whole(static_cast<size_t>(global.elements()));
    if (counted) copy_rect(whole.data(), Rect::whole(global), t.data, here, here, sizeof(double));
    whole = add_over_ranks(std::move(whole));
    Values mine(static_cast<size_t>(here.elements()));
    cut(whole, global, here, mine.data());
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_EQ(mine[i], t.as<double>()[i]) << "the ranks hold different copies";
    return whole;
  }

  Run make_run() {
    Run run{stream_,
            side_,
            cpu_ops(),
            mesh_,
            *weights_,
            grads_.get(),
            &keep_,
            &flow_,
            scratch_,
            &batch_.batch(),
            DType::F64,
            true,
            99,
            1.0 / 7,
            {&losses_[0], DType::F64, {1}},
            {&losses_[1], DType::F64, {1}}};
    run.loss_terms = {&losses_[2], DType::F64, {kMostLossTerms}};
    run.host_values = {host_values_.data(), DType::I32, {static_cast<int64_t>(host_values_.size())}};
    return run;
  }

  void randomise(int64_t vocab) {
    Batch& b = batch_.batch();
    b.first_sample = 3;
    const PhiloxKey key = philox_key(6, "tokens");
    for (int64_t i = 0; i < b.tokens.elements(); ++i) {
      const auto word = [&](uint64_t at) { return philox_word(key, at) % static_cast<uint64_t>(vocab); };
      b.tokens.as<int32_t>()[i] = static_cast<int32_t>(word(2 * static_cast<uint64_t>(i)));
      b.labels.as<int32_t>()[i] = static_cast<int32_t>(word(2 * static_cast<uint64_t>(i) + 1));
      b.positions.as<int32_t>()[i] = static_cast<int32_t>(i % b.seq_length());
      b.loss_weight.as<float>()[i] = i % 3 == 2 ? 0.0F : 1.0F;
      b.token_types.as<int32_t>()[i] = i % 4 / 2;
      for (size_t k = 0; k < kMostLaterLabels; ++k) {
        const auto other = static_cast<uint64_t>(b.tokens.elements()) * (k + 1) + static_cast<uint64_t>(i);
        b.later_labels[k].as<int32_t>()[i] = static_cast<int32_t>(word(2 * other));
        b.later_weights[k].as<float>()[i] = i % 4 == 1 ? 0.0F : 1.0F;
      }
    }
    for (int64_t i = 0; i < b.samples(); ++i) {
      b.lengths.as<int32_t>()[i] = static_cast<int32_t>(b.seq_length() - i);
      b.pair_labels.as<int32_t>()[i] = static_cast<int32_t>(i % 2);
      b.pair_weight.as<float>()[i] = 1;
      b.sample_values.as<double>()[i] =
          static_cast<double>(i) - 20;  // near the log-likelihoods of the samples
      b.answer_begin.as<int32_t>()[i] = static_cast<int32_t>(1 + i);
      b.answer_end.as<int32_t>()[i] = static_cast<int32_t>(b.seq_length() - 1);
    }
    b.values.fill(1.5);
    for (int i = 0; i < params_.size(); ++i) {
      const ShardSpec& shard = params_[{i}].shard;
      values_.push_back(random(shard.global.elements(), shard.name.c_str()));
      for (double& value : values_.back()) value *= 0.5;
      if (!params_[{i}].tied_to) set_weight({i}, 0, values_.back()[0]);
    }
    for (int64_t i = 0; i < reports_.host_values.elements(); ++i)
      host_values_.push_back(static_cast<int32_t>(philox_word(key, static_cast<uint64_t>(i)) % 9));
  }

  Mesh mesh_;
  bool sequence_parallel_;
  Placed input_, output_;
  Arena keep_{size_t{1} << 20}, flow_{size_t{1} << 20}, scratch_{size_t{1} << 20};
  ThreadPool pool_, side_pool_;
  Stream stream_, side_;
  ParamList params_;
  ReportList reports_;
  std::unique_ptr<Layer> layer_;
  int slots_ = 0;
  std::unique_ptr<DataGroups> groups_;
  std::unique_ptr<FlatLayout> layout_;
  std::unique_ptr<ParamStore> weights_;
  std::vector<Values> values_;  // the whole value of each parameter
  std::unique_ptr<GradientBuffer> grads_;
  std::unique_ptr<Saved> saved_;
  BatchBuffer batch_;
  double losses_[2 + kMostLossTerms] =
      {};  // sum, weights, and loss terms: with coefficient 1, or their scale
  std::vector<int32_t> host_values_;
  Values x_here_, dy_here_;
};

}  // namespace trifold::test
