// Linear layers cut over the tensor axis (Shoeybi et al., "Megatron-LM", arXiv 1909.08053). With one rank on that axis
// they are ordinary linear layers. Weights are [out, in]; y = x W^T + b, or without b.
//
// ColumnLinear enters a region (tensor_parallel/regions.h) and cuts the outputs. RowLinear leaves the region and cuts
// the inputs: y is a sum over the axis, and the bias is added once. Ro = R rows, or R/tp under sequence parallelism.
//
// Both have low-rank adapters (tensor_parallel/low_rank.h) if the builder says so; the layer itself is then frozen.
#pragma once

#include <optional>
#include <string>

#include "nn/layers.h"
#include "nn/product_weight.h"
#include "nn/residual.h"
#include "tensor_parallel/low_rank.h"
#include "tensor_parallel/regions.h"

namespace trifold {

// The parameters of a linear layer.
struct LinearParameters {
  ParamId weight;
  std::optional<ParamId> bias;
};

class ColumnLinear final : public Layer {
 public:
  // Parameters <name>.weight [groups, out, in] (no first dim if groups is 1) and, with a bias, <name>.bias without the
  // last dim. Each group's outputs are cut over the axis, so that packed projections (gate and up) stay aligned.
  ColumnLinear(BlockBuilder& builder, const std::string& name, int64_t groups, int64_t out, int64_t in,
               Init init, bool bias = true);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [Ro, in] -> [R, groups * out/tp]
  Tensor backward_input(Run& run, Tensor dy,
                        Saved& saved) const override;  // [R, groups * out/tp] -> [Ro, in]
  void backward_weight(Run& run, Saved& saved) const override;
  // Overlaps the collectives with the products.
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  // Takes dy in the forms of take_gradient.
  Tensor backward_input(Run& run, const Forms& dy, Saved& saved) const;
  Tensor backward(Run& run, const Forms& dy, Saved& saved) const;
  // Memory in run.flow for the forms of dy [rows, groups * out/tp] that the products read; needs reads_narrow.
  Forms take_gradient(Run& run, int64_t rows) const;
  // Replaces the input that forward saved by a recomputed one, before the backward parts.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }
  // Writes activation(y) to the caller's `activated`, in one operation if the table has one. Keeps the same tensors as the
  // forwards of both layers.
  void forward_activated(Run& run, const Forms& activated, const Activation& activation, Tensor x,
                         Saved& saved) const;
  // Whether x and dy may be narrow (ops/narrow.h): nothing but products and the bias reads them, and no rows are gathered.
  bool reads_narrow(const Run& run) const { return run.narrow && !adapters_.any() && !region_.slices(); }
  // The number of rows inside the region, R, given that outside, Ro.
  int64_t rows_inside(int64_t rows) const { return region_.rows_inside(rows); }
  LinearParameters parameters() const { return {weight_.id(), bias_}; }
  // Whether the backward reads the input: not if the layer is frozen and has no adapters.
  bool reads_input() const { return reads_input_; }

 private:
  Tensor take_output(Run& run, Arena& from, Tensor x) const;

  std::string name_;
  Region region_;
  ProductWeight weight_;
  std::optional<ParamId> bias_;
  LowRank adapters_;
  Forms gradient_of(Run& run, Tensor dy) const;

  bool reads_input_;
  SlotId x_, dy_, sums_;
};

class RowLinear final : public Layer {
 public:
  // Parameters <name>.weight [out, in], with `in` cut over the axis, and, with a bias, <name>.bias [out], which every
  // rank holds whole.
  RowLinear(BlockBuilder& builder, const std::string& name, int64_t out, int64_t in, Init init,
            bool bias = true);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [R, in/tp] -> [Ro, out]
  // As forward, with the result in `output`. If products read 8 bits and x is wide, one pass writes the forms that they
  // read, the turned one to run.keep.
  Tensor forward_in(Run& run, Arena& output, const Forms& x, Saved& saved) const;
  // The sum of `add`, whose x is forward(x), in `output`.
  Tensor forward_added(Run& run, Arena& output, const ResidualAdd& add, Tensor residual, const Forms& x,
                       Saved& saved) const;
  // Memory for the forms of x [rows, in/tp] that the layer reads: in `kept` what a backward reads, and, in 8 bits, the rows
  // in run.scratch. `repeated`: a backward reads a repeated x (set_input), and forward only the rows.
  Forms take_input(Run& run, Arena& kept, int64_t rows, bool repeated) const;
  // What a backward reads of x [rows, in/tp], for a repetition, in `kept`.
  Forms take_repeated(Run& run, Arena& kept, int64_t rows) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [Ro, out] -> [R, in/tp]
  void backward_weight(Run& run, Saved& saved) const override;
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }  // as in ColumnLinear
  // backward_input followed by the backward of `activation`, whose output is this layer's input. The second form writes
  // its result to the caller's `dx`.
  Tensor backward_input_activated(Run& run, const Activation& activation, Tensor dy, Saved& saved) const;
  void backward_input_activated(Run& run, const Forms& dx, const Activation& activation, Tensor dy,
                                Saved& saved) const;
  bool reads_narrow(const Run& run) const { return run.narrow && !adapters_.any(); }  // as in ColumnLinear
  LinearParameters parameters() const { return {weight_.id(), bias_}; }
  bool reads_input() const { return reads_input_; }  // as in ColumnLinear

 private:
  std::string name_;
  Region region_;
  ProductWeight weight_;
  std::optional<ParamId> bias_;
  LowRank adapters_;
  // Whether a backward reads a turned x.
  bool turns(const Run& run) const {
    return reads_narrow(run) && run.has_backward() && run.trains(weight_.id());
  }
  Forms kept_input(Run& run, const Forms& x, Saved& saved) const;
  Tensor rows_of_input(Run& run, Forms x) const;

  bool reads_input_;
  SlotId x_, dy_, sums_, wide_dy_;
};

}  // namespace trifold
