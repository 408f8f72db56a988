// The transformer block with post-normalisation, as first published (Vaswani et al., arXiv 1706.03762) and used by
// BERT:
//   h = norm1(x + drop(attention(x))),  y = norm2(h + drop(mlp(h))).
#pragma once

#include <memory>
#include <string>

#include "models/transformer.h"

namespace trifold {

// Attention is not causal. Parameters are named as in TransformerBlock; `recompute_selective` recomputes norm1 and the
// activation only, since the next block keeps the second norm's result.
class PostNormBlock final : public Layer {
 public:
  PostNormBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  bool weight_backward_reads_weights() const override {
    return feed_forward_->weight_backward_reads_weights();
  }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;

 private:
  // As TransformerBlock::walk_back.
  Tensor walk_back(Run& run, Tensor dy, Saved& saved, bool with_weights) const;

  PostNormBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape,
                const AttentionHeads& heads);

  std::string name_;
  bool selective_;
  QueryKeyValue qkv_;
  AttentionCore attention_;
  RowLinear out_;
  DropoutAdd add1_;
  Norm norm1_;
  std::unique_ptr<FeedForward> feed_forward_;
  DropoutAdd add2_;
  Norm norm2_;
};

}  // namespace trifold
