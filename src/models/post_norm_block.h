// The transformer block that normalises last, as it was published (Vaswani et al., arXiv 1706.03762) and as
// BERT has it:
//   h = norm1(x + drop(attention(x))),  y = norm2(h + drop(mlp(h))).
#pragma once

#include <string>

#include "models/transformer.h"

namespace trifold {

// Attention looks at the whole sample. Parameters are named as TransformerBlock's; `recompute_selective`
// computes norm1 and the activation again, for the second norm's result is what the next block keeps.
class PostNormBlock final : public Layer {
 public:
  PostNormBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
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
  ColumnLinear up_;
  Activation activation_;
  RowLinear down_;
  DropoutAdd add2_;
  Norm norm2_;
};

}  // namespace trifold
