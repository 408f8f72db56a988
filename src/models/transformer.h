// TransformerBlock: attention, then a feed-forward network, each added to the residual stream. With pre-norm, as in
// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) and Llama (Touvron et al., arXiv
// 2302.13971):
//   h = x + drop(attention(norm1(x))),  y = h + drop(mlp(norm2(h))),  mlp = down(activation(up(.)));
// with post-norm, as first published (Vaswani et al., arXiv 1706.03762) and used by BERT:
//   h = norm1(x + drop(attention(x))),  y = norm2(h + drop(mlp(h)));
// with norms of the parts' outputs, as in OLMo 2 (arXiv 2501.00656), or both of these and pre-norm's, as in
// Gemma 2 (arXiv 2408.00118):
//   h = x + drop(norm(attention(x))),  y = h + drop(norm(mlp(h)));
// with pre-norm except for the attention of one block, whose input is normalised already, as in ModernBERT's first
// (Warner et al., arXiv 2412.13663):
//   h = x + drop(attention(x)),  y = h + drop(mlp(norm2(h)));
// with parallel parts (Wang & Komatsuzaki, GPT-J, 2021), which may share a norm:
//   y = x + drop(attention(norm1(x))) + drop(mlp(norm2(x))).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/feed_forward.h"
#include "nn/context/attention_core.h"
#include "nn/experts.h"
#include "nn/layers.h"
#include "tensor_parallel/linear.h"
#include "tensor_parallel/query_key_value.h"

namespace trifold {

// Multi-head latent attention (tensor_parallel/latent_projections.h).
struct LatentShape {
  int64_t query_rank = 0;  // 0: queries have no latent vector
  int64_t key_value_rank = 0;
  int64_t plain = 0;  // columns of a head's queries and keys that are not rotated
  int64_t value = 0;  // columns of a head's values
  double key_scale = 1;
  std::optional<double> norm_eps = {};  // for norms of latent vectors; none: TransformerShape::norm_eps
};

// The norms of each of a block's two parts: of its input, of its output, and of the sum of the residual and its output,
// which excludes the others.
struct PartNorms {
  bool input = true;
  bool output = false;
  bool sum = false;
  bool attention_input =
      true;  // with `input`: attention's input has a norm too, not only the feed-forward network's
};

// How the feed-forward network follows attention: it reads the sum to which attention has added; or the block's input,
// as attention does, normalised by a norm of its own or by attention's.
enum class PartOrder { OneAfterAnother, Parallel, ParallelWithOneNorm };

struct TransformerShape {
  PartNorms norms = {};
  PartOrder order = PartOrder::OneAfterAnother;  // parallel parts have no norms of sums
  int64_t width = 0;                             // C
  int64_t heads = 0;
  int64_t kv_heads = 0;  // `heads` or a divisor of it
  int64_t head_dim = 0;  // usually width / heads
  std::optional<LatentShape> latent = {};
  int64_t ffn = 0;  // F, of each expert if there are experts; with a gate, F gates and F outputs
  ExpertsShape experts = {};
  int64_t shared_ffn = 0;    // F of the shared expert; 0: none
  bool shared_gate = false;  // the shared expert has a gate (nn/token_gate.h)
  int64_t mlp_tiles = 1;     // tiles of rows of the feed-forward network (tensor_parallel/tiled_mlp.h)
  Normalization norm = Normalization::LayerNorm;
  bool norm_bias = true;  // NormForm::bias of all norms
  ActivationForm activation = ActivationKind::Gelu;
  bool bias = true;                             // all linear layers have biases
  bool query_key_value_bias = false;            // without `bias`: queries, keys and values have
  bool attention_out_bias = false;              // without `bias`: attention's output projection has
  bool mlp_bias = false;                        // without `bias`: the feed-forward network has
  bool head_norm = false;                       // queries and keys, per head, or latent vectors have norms
  bool heads_as_one = false;                    // those norms are over all heads of a token
  bool norm_after_rope = false;                 // and follow the rotation
  std::vector<double> rotary_frequencies = {};  // this and the next: see QueryKeyValueShape
  double rotary_scale = 1;
  AttentionScores scores = {};
  double norm_eps = 1e-5;
  double gain_offset = 0;          // NormForm::gain_offset of all norms
  double residual_multiplier = 1;  // factor of the parts' outputs (ResidualAdd)
  double init_std = 0.02;
  double output_init_std = 0.02;  // for the two projections into the residual stream
  double hidden_dropout = 0;
  double attention_dropout = 0;
  ContextShape context = {};
  // Keep the outputs of matrix products and attention, but recompute norms and the activation in backward: they are
  // cheap to compute and a third of the kept memory. (Attention itself never keeps its T x T probabilities, which arXiv
  // 2205.05198 recomputes under this name.) A norm that ends the block is kept, because the next block reads it.
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
  // LatentProjections, <name>.norm2, <name>.mlp.{up,down} or, with experts, <name>.mlp.* as in Experts,
  // <name>.mlp.shared.{up,down,gate} for a shared expert, and <name>.{attention,mlp}.output_norm.
  TransformerBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  bool weight_backward_reads_weights() const override {
    return feed_forward_->weight_backward_reads_weights();
  }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;

 private:
  // Both backward_input and backward, which also adds the gradients of weights (`with_weights`). Gradients of
  // activations and recomputed tensors are in scratch within their half of the block if `with_weights`; otherwise they
  // are in run.flow, where backward_weight finds them.
  Tensor compute_backward(Run& run, Tensor dy, Saved& saved, bool with_weights) const;

  TransformerBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape,
                   const AttentionHeads& heads);

  bool parallel() const { return order_ != PartOrder::OneAfterAnother; }
  bool one_norm() const { return order_ == PartOrder::ParallelWithOneNorm; }
  // Whether first_norm_ and middle_norm_ write their outputs in narrow form (ops/narrow.h).
  bool narrows_first(const Run& run) const;
  bool narrows_middle(const Run& run) const;

  // Members are declared, and so register their parameters, in the order of the forward pass.
  std::string name_;
  bool selective_;
  PartOrder order_;
  std::optional<Norm> first_norm_;  // norm1 of inputs
  std::unique_ptr<HeadProjections> qkv_;
  AttentionCore attention_;
  RowLinear out_;
  ResidualAdd add1_;
  std::optional<Norm> middle_norm_;  // norm2 of inputs, or norm1 of sums
  std::unique_ptr<FeedForward> feed_forward_;
  ResidualAdd add2_;
  std::optional<Norm> last_norm_;  // norm2 of sums
  std::optional<SlotId> middle_;   // the feed-forward network's input, if no norm can repeat it
};

}  // namespace trifold
