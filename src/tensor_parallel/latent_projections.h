// The projections of multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434): keys and values of
// all heads are products of one short latent vector of each row, and optionally so are queries:
//   c = norm(x A^T)      [keys of a head, its values] = c B^T     A [r, C]  B [H (plain + value), r]
//   k = rotate(x K^T)    the rest of the keys, the same in every head           K [turned, C]
//   queries = (norm(x D^T) or x) Q^T, of plain + turned numbers each, the last of them rotated
// Rows are rotated by their positions, in pairs of neighbours; k is also multiplied by `key_scale`.
//
// Every tensor rank computes the latent vectors and k of its rows outside the region, with whole weights; they are
// gathered at its border, and their gradients summed. B and Q are cut by heads. Parameters are <name>.query_down.weight
// D, <name>.query_norm.gain, <name>.query_up.weight Q (<name>.query.weight without D), <name>.key_value_down.weight
// [r + turned, C], which is A and K, <name>.key_value_norm.gain and <name>.key_value_up.weight B.
//
// Heads are packed with the same width for queries, keys and values (OpTable::latent_heads): values, usually shorter
// than keys, are padded with zeros. That costs memory and time of attention: with 192 numbers of keys and 128 of
// values, a fifth more of its products, and a third more of the packed rows than necessary.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/layers.h"
#include "tensor_parallel/column_product.h"
#include "tensor_parallel/head_projections.h"

namespace trifold {

struct LatentProjectionsShape {
  int64_t width = 0;           // C
  int64_t query_rank = 0;      // numbers of the queries' latent vector; 0: there is none
  int64_t key_value_rank = 0;  // r
  int64_t plain = 0;           // numbers of a head's queries and keys that are not rotated
  int64_t value = 0;           // of its values
  Init init;
  std::vector<double> rotary_frequencies = {};  // radians per position, one for each rotated pair
  double key_scale = 1;
  std::optional<Normalization> norm = Normalization::RmsNorm;  // of latent vectors
  double norm_eps = 1e-6;
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
  // A latent vector: rows [0, rank) of `down` make it.
  struct Latent {
    int64_t rank;
    ParamId down;
    std::optional<Norm> norm;
    SlotId y;   // after the norm, [Ro, rank]
    SlotId dz;  // the gradient before it
  };
  // The product of a latent vector, or of x, with this rank's heads.
  struct Up {
    std::string name;
    ParamId weight;
    int64_t columns;
    SlotId dy;
  };

  Latent make_latent(BlockBuilder& builder, const std::string& name, int64_t rank, int64_t more) const;
  void take_latent(Run& run, const Latent& latent, Tensor x, Saved& saved) const;
  Tensor multiplied(Run& run, const Up& up, Tensor x) const;
  // The gradient of the input of `up`, which is `x`; with those of its weights.
  Tensor back(Run& run, const Up& up, Tensor x, Saved& saved, bool with_weights) const;
  void back_through_norm(Run& run, const Latent& latent, Tensor dy, Saved& saved, bool with_weights) const;
  Tensor walk_back(Run& run, Tensor dy, Saved& saved, bool with_weights) const;
  // The gradients of the latent vectors' weights and of K.
  void down_gradients(Run& run, Saved& saved) const;
  Tensor query_input(const Saved& saved) const { return saved[query_latent_ ? query_latent_->y : x_]; }
  LatentHeads heads_of_rank() const;

  std::string name_;
  Region region_;
  AttentionHeads heads_;
  LatentProjectionsShape shape_;
  std::optional<Latent> query_latent_;
  Up query_;
  Latent key_value_latent_;
  Up key_value_;
  SlotId x_, dkey_;
};

}  // namespace trifold
