// The network of a transformer layer, y = down(activation(up(x))), computed a tile of rows at a time (Bekman et al.,
// "Arctic Long Sequence Training", arXiv 2506.13996): the activations between its two products, several times as wide
// as the model, exist for one tile only. Only the input is kept; backward computes the inner activations of each tile
// again, once for both gradients, or once for each if they are computed apart.
//
// The collectives are those of ColumnLinear and RowLinear, of all rows at once: under sequence parallelism the rows are
// gathered first, and then cut into tiles. R rows in n tiles are ceil(R / n) rows each; the last has what is left.
//
// A row's output and gradient do not depend on the rows next to it, except for the way in which a product of that many
// rows is computed; gradients of weights are sums over the tiles, in order, of sums over their rows.
#pragma once

#include <string>

#include "core/function_ref.h"
#include "tensor_parallel/linear.h"

namespace trifold {

class TiledMlp final : public Layer {
 public:
  // Parameters <name>.up.* and <name>.down.*, as ColumnLinear and RowLinear make them: `ffn` numbers, or pairs of a
  // gate and a number for Swiglu, between two products with matrices of `width`. `tiles` is at least 1.
  TiledMlp(BlockBuilder& builder, const std::string& name, int64_t width, int64_t ffn,
           ActivationKind activation, bool bias, Init up, Init down, int64_t tiles);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [Ro, C] -> [Ro, C]
  // residual + forward(x) through the dropout of `add`, in run.output(). If that is not needed (Run::repeats), nothing
  // is computed.
  Tensor forward_added(Run& run, const DropoutAdd& add, Tensor residual, Tensor x, Saved& saved) const;
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

  // Calls body(begin, end) for the rows of each tile; what it takes from scratch is released.
  void for_each_tile(Run& run, int64_t rows, FunctionRef<void(int64_t begin, int64_t end)> body) const;
  // activation(up(x)) of a tile [n, C], in scratch.
  Tensor inner(Run& run, Tensor x, Saved& saved) const;
  // The gradient of up(x), in scratch, from that of the tile's output, dy [n, C], after `inner`.
  Tensor inner_gradient(Run& run, Tensor dy, Saved& saved) const;
  void add_weight_gradients(Run& run, Tensor x, Tensor a, Tensor dz, Tensor dy) const;
  // This rank's part of the sum that is the output of all tiles, and that sum.
  void add_partial(Run& run, const Region::Sum& y, Tensor all_x, Saved& saved) const;
  // The gradients of `parts`; that of the input, if asked for.
  Tensor walk_back(Run& run, Tensor dy, Saved& saved, Parts parts) const;
  // Under sequence parallelism the bias of `down` is summed over the rank's own rows, once for all tiles.
  bool sums_bias_apart() const { return down_.parameters().bias && region_.slices(); }

  std::string up_name_, down_name_;  // as shown
  Region region_;
  int64_t tiles_;
  ColumnLinear up_;  // the two make the parameters
  Activation activation_;
  RowLinear down_;
  SlotId x_, dy_;
};

}  // namespace trifold
