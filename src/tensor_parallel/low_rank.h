// LowRank: the low-rank adapters of a linear layer cut over the tensor axis (Hu et al., "LoRA", arXiv 2106.09685). The
// layer calls it with the tensors of its own product, inside the region (tensor_parallel/regions.h):
//
//   y += s (drop(x) A^T) B^T        x [R, in]   A [rank, in]   B [out, rank]   s = adapter_scale
//
// for each adapted module, that is, for the columns of y that belong to it (config/fields/adapter_targets.h). A begins as
// uniform numbers in +-1/sqrt(in), or as normal ones of standard deviation 1/rank (LoraInit), B as zeros, so that the
// adapted layer begins as the layer. Both are trained; the layer's
// own parameters are frozen.
//
// If the layer's outputs are cut, so is B, and A is whole on every rank; if its inputs are cut, so is A, and B is whole.
// The product with the factor that is cut is a partial sum in the same tensor as the layer's own partial sum, so the
// adapters need no collective. The gradient of the factor that is whole is a partial sum over the axis.
//
// With magnitudes (Liu et al., "DoRA", arXiv 2402.09353), an adapted layer computes
//
//   y = c z + b,  z = x W^T + s (drop(x) A^T) B^T,  c[o] = magnitude[o] / |row o of W + s B A|,
//
// where z has no bias, and the norms are constants in backward. Norms of rows that are cut are summed over the axis. A
// magnitude begins as the norm of the row of W (begin_magnitudes).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/product_weight.h"
#include "tensor_parallel/regions.h"

namespace trifold {

class LowRank {
 public:
  using Cut = ProductWeight::Cut;

  // For the layer `name` with the weight `weight` of `groups` groups of outputs, in `pieces` pieces as
  // in BlockBuilder::sharded. Parameters <module>.lora_a [rank, in], <module>.lora_b [out, rank], and with magnitudes
  // <module>.magnitude [out], where `out` are the outputs of the module.
  LowRank(BlockBuilder& builder, const std::string& name, const ProductWeight& weight, int64_t groups,
          Cut cut, int64_t pieces = 0);

  // Whether the layer has adapters, and whether they have magnitudes. Without adapters, no function has an effect.
  bool any() const { return !modules_.empty(); }
  bool scales() const { return scales_; }

  // Takes what forward keeps for `rows` rows from run.keep: before the layer marks scratch.
  void reserve(Run& run, int64_t rows, Saved& saved) const;
  // Adds to y [R, all columns], or to z with magnitudes.
  void forward(Run& run, Tensor y, Tensor x, Saved& saved) const;
  // With magnitudes: y = c z + bias (no memory: none); keeps z.
  void scale(Run& run, Tensor y, Tensor z, Tensor bias, Saved& saved) const;
  // Begins the backward: returns the gradient of z, in run.flow, from that of y; dy itself without magnitudes. Takes what
  // the backward keeps from run.flow: before the layer marks scratch.
  Tensor begin_backward(Run& run, Tensor dy, Saved& saved) const;
  // dx += the adapters' gradient of x, unless dx has no dims because it is not wanted (Run::wants_dx).
  void backward_input(Run& run, Tensor dx, Saved& saved) const;
  // Gradients of all parameters; must follow backward_input. x as in forward.
  void backward_weight(Run& run, Tensor x, Saved& saved) const;

 private:
  struct Module {
    std::string name;
    int64_t first = 0;    // its first column of y on this rank
    int64_t columns = 0;  // its columns on this rank
    ParamId a, b, magnitude;
    PhiloxKey key;  // keys its dropout
    SlotId low;     // x A^T, [R, rank]
    SlotId dlow;    // its gradient
  };
  Tensor dropped(Run& run, const Module& module, Tensor x) const;
  void add_dropped(Run& run, const Module& module, Tensor dx, Tensor dlow) const;
  // 1 / the norms of the rows of W + s B A, in the accumulate_type, in scratch.
  Tensor inverse_norms(Run& run, const Module& module) const;

  std::vector<Module> modules_;
  ProductWeight weight_;
  Cut cut_;
  int row_part_ = 0;  // index of this rank's part of the rows
  int64_t rank_ = 0;
  int64_t columns_ = 0;  // columns of y on this rank
  double factor_ = 0;    // s
  double dropout_ = 0;
  bool scales_ = false;
  int64_t all_inputs_ = 0;   // `in` of all ranks
  int64_t first_input_ = 0;  // the first on this rank
  SlotId z_, dy_, dz_;
  SlotId factors_, inverses_;  // c and 1 / norms of all columns
};

}  // namespace trifold
