// BatchNorm: normalises each column of an activation by the samples of all ranks (Ioffe & Szegedy, ICML 2015):
//
//   y = (x - mean) / sqrt(variance + eps) * weight + bias
//
// In training, mean and variance are statistics of the real samples of the global batch. They are summed over the ranks
// in forward, like the two sums of backward, so they do not depend on the mesh, within rounding. Otherwise running
// statistics are used. B = samples of this rank, C = columns.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "nn/layer.h"

namespace trifold {

// What these layers need in addition to activations; the BatchPart of their model is derived from it. Running and
// latest statistics are [2, columns of all layers]: means, then variances.
struct WholeBatch : BatchPart {
  static constexpr double kMomentum = 0.1;  // for the running statistics, as in PyTorch

  Communicator* ranks = nullptr;  // used for these sums alone; null: this rank has all samples
  Tensor real = {};               // [B, 1]: 1, or 0 for padding, whose gradients must be 0
  Tensor running = {};
  Tensor latest = {};  // written by forward in training; variances are divided by the number of samples
};

// Statistics, normalised values and the tensors of WholeBatch have the accumulate_type of the run. Parameters
// <name>.weight and <name>.bias [C] start as 1 and 0.
class BatchNorm {
 public:
  static constexpr double kEps = 1e-5;

  // `first`: the first column of this layer in the statistics of all layers.
  BatchNorm(BlockBuilder& builder, const std::string& name, int64_t columns, int64_t first);
  Tensor forward(Run& run, const Tensor& x, Saved& saved) const;          // [B, C] -> [B, C]
  Tensor backward_input(Run& run, const Tensor& dy, Saved& saved) const;  // also the parameters' gradients

 private:
  Tensor of_layer(const Tensor& statistics, int64_t row) const;
  void sum(Run& run, const Tensor& sums) const;
  void moments(Run& run, const Tensor& mean, const Tensor& variance, const Tensor& x) const;
  void center(Run& run, const Tensor& y, const Tensor& x, const Tensor& mean) const;
  void product(Run& run, const Tensor& y, const Tensor& a, const Tensor& b) const;
  void scale_columns(Run& run, const Tensor& y, const Tensor& x, const Tensor& factors) const;
  Tensor exact(Run& run, Arena& arena, const Tensor& x) const;

  int64_t columns_, first_;
  ParamId weight_, bias_;
  SlotId normal_, factors_;  // (x - mean) rstd, and weight * rstd
};

}  // namespace trifold
