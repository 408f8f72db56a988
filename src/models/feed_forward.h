// The second half of a transformer block, between its norm and the residual stream: one network for all tokens, or a
// mixture of experts (nn/experts.h).
#pragma once

#include <memory>
#include <string>

#include "core/function_ref.h"
#include "nn/layers.h"

namespace trifold {

struct TransformerShape;

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // residual + drop(f(x)), in run.output(); not computed if it is not needed (Run::repeats). Tensors that the backward
  // pass can recompute are kept in `maybe`.
  virtual Tensor forward_added(Run& run, Arena& maybe, const DropoutAdd& add, Tensor residual, Tensor x,
                               Saved& saved) const = 0;
  // The gradient of x, and those of the weights if `with_weights` is set. If x was not kept, `input` recomputes it;
  // other recomputed tensors are kept by `again`.
  virtual Tensor walk_back(Run& run, Run& again, Tensor dy, FunctionRef<Tensor()> input, Saved& saved,
                           bool with_weights) const = 0;
  virtual void backward_weight(Run& run, Saved& saved) const = 0;
  virtual bool weight_backward_reads_weights() const { return false; }  // see Layer
};

// Makes the kind that the shape describes; parameters are named <name>.*.
std::unique_ptr<FeedForward> make_feed_forward(BlockBuilder& builder, const std::string& name,
                                               const TransformerShape& shape);

}  // namespace trifold
