// TiledMlp: the feed-forward network y = down(activation(up(x))), computed a tile of rows at a time (Bekman et al.,
// "Arctic Long Sequence Training", arXiv 2506.13996). The inner activations, several times as wide as the model, exist
// for one tile at a time. Only the input is kept; backward recomputes the inner activations of each tile, once for both
// gradients, or once for each if backward_input and backward_weight run separately.
//
// The collectives are the same as in ColumnLinear and RowLinear and cover all rows: under sequence parallelism the rows
// are gathered first and then cut into tiles. R rows in n tiles are ceil(R / n) rows each; the last tile has the rest.
//
// A row's output and gradient do not depend on other rows, except for the algorithm of a product of that many rows.
// Gradients of weights are sums over the tiles, in order, of sums over their rows.
#pragma once

#include <string>

#include "core/function_ref.h"
#include "tensor_parallel/linear.h"

namespace trifold {

class TiledMlp final : public Layer {
 public:
  // Parameters <name>.up.* as in ColumnLinear, with `ffn` outputs (with a gate, `ffn` gates and `ffn` outputs), and
  // <name>.down.* as in RowLinear. `tiles` is at least 1.
  TiledMlp(BlockBuilder& builder, const std::string& name, int64_t width, int64_t ffn,
           const ActivationForm& activation, bool bias, Init up, Init down, int64_t tiles);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [Ro, C] -> [Ro, C]
  // The sum of `add`, whose x is forward(x), in run.output(). Computes nothing if neither the sum (Run::repeats) nor x
  // is read.
  Tensor forward_added(Run& run, const ResidualAdd& add, Tensor residual, Tensor x, Saved& saved) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [Ro, C] -> [Ro, C]
  void backward_weight(Run& run, Saved& saved) const override;
  bool weight_backward_reads_weights() const override { return true; }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  // Replaces the input that forward saved by a recomputed one, before the backward parts.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }

 private:
  struct Parts {
    bool input, weights;
  };

  // Calls body(begin, end) for the rows of each tile, and releases the scratch that it takes.
  void for_each_tile(Run& run, int64_t rows, FunctionRef<void(int64_t begin, int64_t end)> body) const;
  // activation(up(x)) of a tile [n, C], in scratch.
  Tensor inner(Run& run, Tensor x, Saved& saved) const;
  // The gradient of up(x), in scratch, from the gradient dy [n, C] of the tile's output. Called after `inner`.
  Tensor inner_gradient(Run& run, Tensor dy, Saved& saved) const;
  void add_weight_gradients(Run& run, Tensor x, Tensor a, Tensor dz, Tensor dy) const;
  // Computes this rank's partial sums of the outputs of all tiles in `y`, and sums them over the axis.
  void add_partial(Run& run, const Region::Sum& y, Tensor all_x, Saved& saved) const;
  // Computes the gradients in `parts`; returns the gradient of the input if it is one.
  Tensor compute_backward(Run& run, Tensor dy, Saved& saved, Parts parts) const;
  // Whether the bias of `down` is summed once for all tiles, as in RowLinear: over the rank's own rows under sequence
  // parallelism, and over the exact ones if factors are narrow.
  bool sums_bias_apart(const Run& run) const {
    return down_.parameters().bias && (run.narrow || region_.slices());
  }

  std::string up_name_, down_name_;  // as Run::show passes them
  Region region_;
  int64_t tiles_;
  ColumnLinear up_;  // up_ and down_ declare the parameters
  Activation activation_;
  RowLinear down_;
  SlotId x_, dy_;
};

}  // namespace trifold
