// ShapesOnly: parameters without memory, for walks on a Dry stream.
#pragma once

#include "nn/param.h"

namespace trifold {

class ShapesOnly final : public ParamSource, public GradSink {
 public:
  // `params` must outlive it.
  ShapesOnly(const ParamList& params, DType dtype) : params_(params), dtype_(dtype) {}
  Tensor weight(ParamId id) const override {
    if (params_[id].quantized) return {nullptr, DType::U8, {params_[id].stored_length()}};
    return {nullptr, dtype_, params_[id].shard.local.extent};
  }
  Tensor exact(ParamId id) const override {
    return {nullptr, accumulate_type(dtype_), params_[id].shard.local.extent};
  }
  Tensor grad(ParamId id) const override {
    return {nullptr, accumulate_type(dtype_), params_[id].shard.local.extent};
  }
  bool trains(ParamId id) const override { return !params_[id].frozen; }
  void reduce(int, Stream&) override {}
  void reduce_tied(Stream&) override {}

 private:
  const ParamList& params_;
  DType dtype_;
};

}  // namespace trifold
