// LayerBench: one layer alone on one rank, in f64, with everything a Run needs: for checks of its
// mathematics.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/thread_comm.h"
#include "data/read_ahead.h"
#include "data_parallel/gradient_buffer.h"
#include "nn/layer.h"
#include "zero/param_store.h"

namespace trifold::test {

class LayerBench {
 public:
  using Make = std::function<std::unique_ptr<Layer>(BlockBuilder&)>;

  // `vocab` bounds the random token ids of the batch.
  LayerBench(const Make& make, int64_t samples, int64_t seq_length, int64_t vocab)
      : world_(1),
        comm_(world_.join(0)),
        mesh_(*comm_, {}),
        pool_(2),
        comm_pool_(1),
        stream_(Stream::Mode::Inline, pool_),
        comm_stream_(Stream::Mode::Inline, comm_pool_),
        batch_(samples, seq_length) {
    BlockBuilder builder(params_, mesh_, 0, 99);
    layer_ = make(builder);
    slots_ = builder.slots();
    weights_ = std::make_unique<ParamStore>(params_, DType::F64);
    grads_ = std::make_unique<GradientBuffer>(params_, 1, mesh_, cpu_ops(), DType::F64, 1, comm_stream_);
    randomise(vocab);
  }

  const ParamList& params() const { return params_; }
  Tensor weight(ParamId id) const { return weights_->weight(id); }
  Tensor grad(ParamId id) const { return grads_->grad(id); }
  Batch& batch() { return batch_.batch(); }

  // Runs forward; returns a copy of y and adds the layer's own loss, if it has one.
  std::vector<double> forward(const std::vector<double>& x, const Shape& shape, double* own_loss = nullptr) {
    saved_ = std::make_unique<Saved>(slots_);
    keep_.reset();
    Run run = make_run();
    losses_[0] = losses_[1] = 0;
    input_ = x;
    const Tensor y = layer_->forward(run, view(input_, shape), *saved_);
    if (own_loss != nullptr) *own_loss = losses_[0] * run.loss_scale;
    return y.data == nullptr ? std::vector<double>{} : copy(y);
  }

  // Backward of the last forward; gradients of parameters accumulate from zero. `split` runs the two halves
  // apart.
  std::vector<double> backward(const std::vector<double>& dy, const Shape& shape, bool split) {
    flow_.reset();
    Run run = make_run();
    grads_->zero(stream_);
    gradient_ = dy;
    const Tensor given = dy.empty() ? Tensor{} : view(gradient_, shape);
    Tensor dx;
    if (split) {
      dx = layer_->backward_input(run, given, *saved_);
      layer_->backward_weight(run, *saved_);
    } else {
      dx = layer_->backward(run, given, *saved_);
    }
    return dx.data == nullptr ? std::vector<double>{} : copy(dx);
  }

  static std::vector<double> random(int64_t count, const char* name) {
    std::vector<double> values(static_cast<size_t>(count));
    const PhiloxKey key = philox_key(5, name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = philox_normal(key, i);
    return values;
  }

 private:
  static Tensor view(std::vector<double>& values, const Shape& shape) {
    return values.empty() ? Tensor{} : Tensor{values.data(), DType::F64, shape};
  }
  static std::vector<double> copy(Tensor t) { return {t.as<double>(), t.as<double>() + t.elements()}; }

  Run make_run() {
    return {stream_,
            cpu_ops(),
            mesh_,
            *weights_,
            grads_.get(),
            keep_,
            flow_,
            scratch_,
            &batch_.batch(),
            DType::F64,
            true,
            99,
            1.0 / 7,
            {&losses_[0], DType::F64, {1}},
            {&losses_[1], DType::F64, {1}}};
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
    }
    for (int i = 0; i < params_.size(); ++i) {
      const Tensor w = weight({i});
      if (params_[{i}].tied_to) continue;
      const std::vector<double> values = random(w.elements(), params_[{i}].shard.name.c_str());
      for (int64_t e = 0; e < w.elements(); ++e) w.as<double>()[e] = 0.5 * values[static_cast<size_t>(e)];
    }
  }

  ThreadWorld world_;
  std::unique_ptr<Communicator> comm_;
  Mesh mesh_;
  ThreadPool pool_, comm_pool_;
  Stream stream_, comm_stream_;
  ParamList params_;
  std::unique_ptr<Layer> layer_;
  int slots_ = 0;
  std::unique_ptr<ParamStore> weights_;
  std::unique_ptr<GradientBuffer> grads_;
  std::unique_ptr<Saved> saved_;
  Arena keep_{size_t{1} << 22}, flow_{size_t{1} << 22}, scratch_{size_t{1} << 22};
  BatchBuffer batch_;
  double losses_[2] = {0, 0};
  std::vector<double> input_, gradient_;
};

}  // namespace trifold::test
