// LatentProjections: the projections of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434).
// Keys and values of all heads are products of one short latent vector of each row, and queries may be products of
// another:
//   c = norm(x A^T)      [keys of a head, its values] = c B^T     A [r, C]  B [H (plain + value), r]
//   k = rotate(x K^T)    the rest of the keys, the same in every head           K [turned, C]
//   queries = (norm(x D^T) or x) Q^T, plain + turned columns for each head, of which the last are rotated
// Pairs of adjacent columns are rotated by the row's position; k is also multiplied by `key_scale`.
//
// Every tensor rank computes the latent vectors and k of its rows outside the region, with whole weights; at its border
// they are gathered and their gradients summed. B and Q are cut by heads. Parameters:
//   <name>.query_down.weight       D
//   <name>.query_norm.gain
//   <name>.query_up.weight         Q; <name>.query.weight without D
//   <name>.key_value_down.weight   A and K, [r + turned, C]
//   <name>.key_value_norm.gain
//   <name>.key_value_up.weight     B
// Each product may have low-rank adapters (low_rank.h); A and K have one module, key_value_down.
//
// Queries, keys and values are packed with the same width (OpTable::latent_heads): values, usually shorter than keys,
// are padded with zeros. With keys of 192 columns and values of 128, this costs a fifth more products in attention and
// a third more memory for packed rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/context/attention_core.h"
#include "nn/layers.h"
#include "tensor_parallel/column_product.h"
#include "tensor_parallel/head_projections.h"
#include "tensor_parallel/low_rank.h"

namespace trifold {

struct LatentProjectionsShape {
  int64_t width = 0;           // C
  int64_t query_rank = 0;      // width of the queries' latent vector; 0: none
  int64_t key_value_rank = 0;  // r
  int64_t plain = 0;           // columns of a head's queries and keys that are not rotated
  int64_t value = 0;           // columns of a head's values
  Init init;
  std::vector<double> rotary_frequencies = {};  // radians per position, one for each rotated pair
  double key_scale = 1;
  std::optional<Normalization> norm = Normalization::RmsNorm;  // norm of latent vectors
  double norm_eps = 1e-6, gain_offset = 0;                     // this and the next as in NormForm
  bool norm_bias = true;
};

class LatentProjections final : public HeadProjections {
 public:
  // `heads` has as many key heads as query heads.
  LatentProjections(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads,
                    const LatentProjectionsShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [Ro, C] -> [R, packed columns]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, packed columns] -> [Ro, C]
  void backward_weight(Run& run, Saved& saved) const override;
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  void set_input(Saved& saved, Tensor x) const override { saved[x_] = x; }

 private:
  // A latent vector, the product with rows [0, rank) of `down`. Further rows give `more` columns.
  struct Latent {
    int64_t rank;
    int64_t more;
    ProductWeight down;
    LowRank adapters;
    std::optional<Norm> norm;
    SlotId y;        // output of the norm, [Ro, rank]
    SlotId dz;       // gradient of the norm's input
    SlotId product;  // with magnitudes: x W^T and the adapters' sum, [Ro, rank + more]
  };
  // The product of a latent vector, or of x, with this rank's heads.
  struct Up {
    std::string name;
    ProductWeight weight;
    int64_t columns;
    SlotId dy;
    LowRank adapters;
    SlotId product;  // with magnitudes: as in Latent, [R, columns]
  };

  Latent make_latent(BlockBuilder& builder, const std::string& name, int64_t rank, int64_t more) const;
  Up make_up(BlockBuilder& builder, std::string name, int64_t columns, int64_t in) const;
  // y = x times rows [first, last) of `down`.
  void plain_product(Run& run, Tensor y, Tensor x, const Latent& latent, int64_t first, int64_t last) const;
  // Takes the latent vector, normed; with adapters, also writes the columns behind it to `rest`, [Ro, more].
  void take_latent(Run& run, const Latent& latent, Tensor x, Tensor rest, Saved& saved) const;
  // The product of a latent vector with adapters: the vector, before its norm, in `raw`, and `rest`.
  void adapted_product(Run& run, const Latent& latent, Tensor x, Tensor raw, Tensor rest, Saved& saved) const;
  // dx += the gradient of x from that of the latent vector and of the columns behind it; nothing without dims.
  void add_down(Run& run, const Latent& latent, Tensor dx, double beta, Tensor drest, Saved& saved) const;
  void reserve_up(Run& run, const Up& up, int64_t rows, Saved& saved) const;
  Tensor multiplied(Run& run, const Up& up, Tensor x, Saved& saved) const;
  // Returns the gradient of x, the input of `up`, unless run.wants_dx says that nobody reads it; adds the gradients of
  // its weights if `with_weights`.
  Tensor backward_up(Run& run, const Up& up, Tensor x, Saved& saved, bool with_weights) const;
  // The gradients of the adapters of `up`.
  void adapter_gradients(Run& run, const Up& up, Tensor x, Saved& saved) const;
  void backward_norm(Run& run, const Latent& latent, Tensor dy, Saved& saved, bool with_weights) const;
  Tensor compute_backward(Run& run, Tensor dy, Saved& saved, bool with_weights) const;
  // Adds the gradients of A, D and K.
  void down_gradients(Run& run, Saved& saved) const;
  Tensor query_input(const Saved& saved) const { return saved[query_latent_ ? query_latent_->y : x_]; }
  LatentHeads heads_of_rank() const;

  std::string name_;
  Region region_;
  AttentionHeads heads_;
  LatentProjectionsShape shape_;
  std::optional<Latent> query_latent_;
  Latent key_value_latent_;
  Up query_;
  Up key_value_;
  SlotId x_, dkey_;
};

}  // namespace trifold
