// FeedForward: the second half of a transformer block, between its norm and the residual stream: one network for all
// tokens, or a mixture of experts (nn/experts.h).
#pragma once

#include <memory>
#include <string>

#include "core/function_ref.h"
#include "nn/residual.h"

namespace trifold {

struct TransformerShape;

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // The sum of `add`, whose x is f(x), in run.output(); not computed if it is not needed (Run::repeats). Tensors that the backward
  // pass can recompute are kept in `recomputable`.
  virtual Tensor forward_added(Run& run, Arena& recomputable, const ResidualAdd& add, Tensor residual,
                               Tensor x, Saved& saved) const = 0;
  // Returns the gradient of x; adds the gradients of the weights if `with_weights` is set. If x was not kept, `input`
  // recomputes it; other tensors are recomputed with `recompute_run`.
  virtual Tensor compute_backward(Run& run, Run& recompute_run, Tensor dy, FunctionRef<Tensor()> input,
                                  Saved& saved, bool with_weights) const = 0;
  virtual void backward_weight(Run& run, Saved& saved) const = 0;
  // Whether the backward reads x.
  virtual bool reads_input() const { return true; }
  virtual bool weight_backward_reads_weights() const { return false; }  // as in Layer
  // Whether forward_added, and backward from `input`, take a narrow x (ops/narrow.h).
  virtual bool reads_narrow(const Run& /*run*/) const { return false; }
};

// Makes the feed-forward network that the shape describes; its parameters are named <name>.*.
std::unique_ptr<FeedForward> make_feed_forward(BlockBuilder& builder, const std::string& name,
                                               const TransformerShape& shape);

}  // namespace trifold
