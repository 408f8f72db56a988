// The projections at the beginning of attention: from a row of the residual stream to its packed queries,
// keys and values, as ops.attention expects them. Like ColumnLinear it enters a region; each rank computes
// the heads that AttentionHeads assigns to it. Queries and keys may be normalised, head by head, and rotated
// by their position (Su et al., arXiv 2104.09864).
//
// With as many key heads as query heads there is one weight, <name>.qkv.weight [3, H D, C]. With fewer there
// are two, <name>.query.weight [H D, C] and <name>.key_value.weight [2, G D, C]; rows of x are gathered, and
// gradients of x summed, once for both. H heads, G key heads, D numbers per head, C width.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "nn/layers.h"
#include "tensor_parallel/column_product.h"
#include "tensor_parallel/head_projections.h"

namespace trifold {

struct QueryKeyValueShape {
  int64_t width = 0;  // C
  Init init;
  bool bias = true;
  // Radians per position, one for each rotated pair of numbers of a head; empty: none is rotated.
  std::vector<double> rotary_frequencies = {};
  // Norms of each head's queries and keys, with gains <name>.query_norm.gain and <name>.key_norm.gain [D]
  // that all heads share.
  std::optional<Normalization> head_norm = {};
  double norm_eps = 1e-5;
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

 private:
  // The heads of one kind: their columns in the packed matrix and in their projection, and their norm.
  struct Heads {
    int64_t count;
    int64_t packed;  // first column
    int64_t column;  // in the projection
    bool turned;
    std::optional<Norm> norm;
    SlotId raw;  // before the norm: [R, count * D]
  };
  // One product.
  struct Projection {
    ParamId weight;
    std::optional<ParamId> bias;
    int64_t columns;  // of its result
    std::vector<Heads> heads;
    SlotId dy;
  };

  // `groups` kinds of vectors (queries, keys, values) with `all` heads in the model, from packed column
  // `packed`.
  void add_projection(BlockBuilder& builder, const std::string& name, const std::string& part, int64_t groups,
                      int64_t all, int64_t packed);
  bool is_plain() const;
  void project(Run& run, Tensor packed, Tensor all_x, Saved& saved) const;
  void finish(Run& run, Tensor packed, const Projection& from, Tensor made, Saved& saved) const;
  // The gradients of the projections' results, stored in `saved`.
  void undo(Run& run, Tensor dpacked, Saved& saved) const;
  // The tensors that a part of the adjoint needs for each product: weights, their gradients, or both.
  struct Gradients {
    std::array<ColumnGradient, 2> items;
    size_t count = 0;
    std::span<const ColumnGradient> all() const { return {items.data(), count}; }
  };
  Gradients gradients(Run& run, bool inputs, bool weights, Saved& saved) const;
  void norm_gradients(Run& run, Saved& saved) const;
  Rotary turn(const Heads& heads, int64_t x_column, int64_t y_column, bool inverse) const;

  std::string name_;
  Region region_;
  AttentionHeads heads_;
  QueryKeyValueShape shape_;
  std::vector<Projection> projections_;
  SlotId x_;
};

}  // namespace trifold
