// The transformer block: attention, then a feed-forward network, each added to the residual stream. With the norm before
// each part, as in GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) and Llama (Touvron
// et al., arXiv 2302.13971):
//   h = x + drop(attention(norm1(x))),  y = h + drop(mlp(norm2(h))),  mlp = down(activation(up(.)));
// with the norm of each sum, as first published (Vaswani et al., arXiv 1706.03762) and used by BERT:
//   h = norm1(x + drop(attention(x))),  y = norm2(h + drop(mlp(h))).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/feed_forward.h"
#include "nn/experts.h"
#include "nn/layers.h"
#include "tensor_parallel/linear.h"
#include "tensor_parallel/query_key_value.h"

namespace trifold {

// Of multi-head latent attention (tensor_parallel/latent_projections.h).
struct LatentShape {
  int64_t query_rank = 0;  // 0: queries have no latent vector
  int64_t key_value_rank = 0;
  int64_t plain = 0;  // numbers of a head's queries and keys that are not rotated
  int64_t value = 0;  // numbers of a head's values
  double key_scale = 1;
  std::optional<double> norm_eps = {};  // of the norms of latent vectors; none: that of the others
};

// Where a block normalises: the input of each of its two parts, or the sum that the part's output is added to.
enum class NormOrder { BeforePart, AfterSum };

struct TransformerShape {
  NormOrder order = NormOrder::BeforePart;
  AttentionSight sight = AttentionSight::Causal;
  int64_t width = 0;  // C
  int64_t heads = 0;
  int64_t kv_heads = 0;  // as many, or a divisor of it
  int64_t head_dim = 0;  // usually width / heads
  std::optional<LatentShape> latent = {};
  int64_t ffn = 0;  // F, of each expert, if there are experts; Swiglu has F gates and F gated numbers
  ExpertsShape experts = {};
  int64_t shared_ffn = 0;    // of the shared network that every token also passes; 0: none
  bool shared_gate = false;  // its output is gated per token (nn/token_gate.h)
  int64_t mlp_tiles = 1;  // of rows that pass the network one after the other (tensor_parallel/tiled_mlp.h)
  Normalization norm = Normalization::LayerNorm;
  ActivationKind activation = ActivationKind::Gelu;
  bool bias = true;                             // of the linear layers
  bool query_key_value_bias = false;            // of these three projections, if the others have none
  bool attention_out_bias = false;              // of attention's output projection, the same
  bool mlp_bias = false;                        // of the feed-forward network, the same
  bool head_norm = false;                       // norm of queries and keys, per head; or of latent vectors
  std::vector<double> rotary_frequencies = {};  // see QueryKeyValueShape
  double score_scale = 1;                       // see AttentionCore
  double norm_eps = 1e-5;
  double init_std = 0.02;
  double output_init_std = 0.02;  // of the two projections that end in the residual stream
  double hidden_dropout = 0;
  double attention_dropout = 0;
  ContextShape context = {};
  // Keep the results of matrix products and attention but recompute the norms and the activation in backward: cheap to
  // compute, and a third of the kept memory. (Attention itself never keeps its T x T probabilities, which arXiv
  // 2205.05198 recomputes under this name.) A norm that ends the block is kept all the same: the next block reads it.
  bool recompute_selective = false;
};

// The query, key and value projections of a block of this shape without latent vectors.
QueryKeyValueShape projections_of(const TransformerShape& shape);
// The projections of any shape.
std::unique_ptr<HeadProjections> make_projections(BlockBuilder& builder, const std::string& name,
                                                  const AttentionHeads& heads, const TransformerShape& shape);

class TransformerBlock final : public Layer {
 public:
  // Parameters are named <name>.norm1, <name>.attention.out, <name>.attention.* as in QueryKeyValue or
  // LatentProjections, <name>.norm2, <name>.mlp.{up,down} or, with experts, <name>.mlp.* as in Experts, and
  // <name>.mlp.shared.{up,down,gate} for a shared network.
  TransformerBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  bool weight_backward_reads_weights() const override {
    return feed_forward_->weight_backward_reads_weights();
  }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;

 private:
  // One walk for both backward forms: with the gradients of weights and without. With the weights, activation gradients
  // and recomputed tensors live only within their half of the block and lie in scratch; otherwise they lie in flow,
  // where backward_weight finds them later.
  Tensor walk_back(Run& run, Tensor dy, Saved& saved, bool with_weights) const;

  TransformerBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape,
                   const AttentionHeads& heads);

  // Members are declared, and so registered, in the order of the forward pass. Both orders have a norm between attention
  // and feed-forward network; the other one is the first of the block (BeforePart) or the last (AfterSum).
  std::string name_;
  bool selective_;
  std::optional<Norm> first_norm_;
  std::unique_ptr<HeadProjections> qkv_;
  AttentionCore attention_;
  RowLinear out_;
  DropoutAdd add1_;
  Norm middle_norm_;
  std::unique_ptr<FeedForward> feed_forward_;
  DropoutAdd add2_;
  std::optional<Norm> last_norm_;
};

}  // namespace trifold
