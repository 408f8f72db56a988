// QueryKeyValue: the projections at the beginning of attention, from rows of the residual stream to packed queries,
// keys and values as OpTable::attention reads them. Like ColumnLinear it enters a region; each rank computes the heads
// that AttentionHeads assigns to it. Queries and keys may be normalised, head by head, and rotated by their positions
// (Su et al., arXiv 2104.09864). H = heads, G = key heads, D = columns of a head, C = width.
//
// If G = H there is one weight, <name>.qkv.weight [3, H D, C]. Otherwise there are two, <name>.query.weight [H D, C]
// and <name>.key_value.weight [2, G D, C]; rows of x are gathered, and gradients of x summed, once for both.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "nn/context/attention_core.h"
#include "nn/layers.h"
#include "tensor_parallel/column_product.h"
#include "tensor_parallel/head_norm.h"
#include "tensor_parallel/head_projections.h"
#include "tensor_parallel/low_rank.h"

namespace trifold {

struct QueryKeyValueShape {
  int64_t width = 0;  // C
  Init init;
  bool bias = true;
  // Radians per position, one for each rotated pair of columns of a head; empty: no rotation.
  std::vector<double> rotary_frequencies = {};
  // Norms of queries and keys, <name>.query_norm.* and <name>.key_norm.* as in HeadNorm: of each head, or of all as one.
  std::optional<Normalization> head_norm = {};
  bool heads_as_one = false;
  bool norm_after_rope = false;             // they follow the rotation, which they precede otherwise
  double norm_eps = 1e-5, gain_offset = 0;  // this and the next as in NormForm
  bool norm_bias = true;
  double rotary_scale = 1;  // factor of the rotated columns
};

class QueryKeyValue final : public HeadProjections {
 public:
  QueryKeyValue(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads,
                const QueryKeyValueShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [Ro, C] -> [R, packed columns]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // may overwrite dy
  void backward_weight(Run& run, Saved& saved) const override;
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  void set_input(Saved& saved, Tensor x) const override { saved[x_] = x; }
  bool reads_narrow(const Run& run) const override;
  bool reads_input() const override { return reads_input_; }

 private:
  // The heads of one kind: queries, keys or values.
  struct Heads {
    int64_t count;
    int64_t packed;  // first column in the packed matrix
    int64_t column;  // first column in the projection
    bool turned;     // rotated
    std::optional<HeadNorm> norm;
    SlotId raw;  // input of the norm, [R, count * D]
  };
  // One product with x.
  struct Projection {
    ProductWeight weight;
    std::optional<ParamId> bias;
    LowRank adapters;
    int64_t columns;  // columns of the product
    std::vector<Heads> heads;
    SlotId dy, turned_dy, sums;  // the forms of the product's gradient (ops/forms.h)
    SlotId before_scale;         // with magnitudes: the product, [R, columns]
  };

  // `groups` kinds of heads (queries, keys, values) with `all` heads each in the model, from packed column `packed` on.
  void add_projection(BlockBuilder& builder, const std::string& name, const std::string& part, int64_t groups,
                      int64_t all, int64_t packed);
  bool is_plain() const;
  void project(Run& run, Tensor packed, Tensor all_x, Saved& saved) const;
  void finish(Run& run, Tensor packed, const Projection& from, Tensor output, Saved& saved) const;
  // Computes the gradients of the projections' outputs, in `saved`, in the forms that their products read.
  void undo(Run& run, Tensor dpacked, Saved& saved) const;
  void undo_heads(Run& run, Tensor dmade, Tensor dpacked, const Projection& projection, Saved& saved) const;
  // The tensors that input_gradient and weight_gradient (column_product.h) need for each product.
  struct Gradients {
    std::array<ColumnGradient, 2> items;
    size_t count = 0;
    std::span<const ColumnGradient> all() const { return {items.data(), count}; }
  };
  Gradients gradients(Run& run, bool inputs, bool weights, Saved& saved) const;
  void reserve_adapters(Run& run, int64_t rows, Saved& saved) const;
  void norm_gradients(Run& run, Saved& saved) const;
  void adapter_gradients(Run& run, Saved& saved) const;
  Rotary turn(const Heads& heads, int64_t x_column, int64_t y_column, bool inverse,
              bool rotates = true) const;

  std::string name_;
  Region region_;
  AttentionHeads heads_;
  QueryKeyValueShape shape_;
  std::vector<Projection> projections_;
  bool reads_input_ = false;
  SlotId x_;
};

}  // namespace trifold
